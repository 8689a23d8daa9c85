//! Every runtime, every check. A runtime joins here with one line.

use motu_conformance::conformance;

conformance!(fake, motu_conformance::subjects::fake());
conformance!(host, motu_conformance::subjects::host());
conformance!(container, motu_conformance::subjects::container());
conformance!(gvisor, motu_conformance::subjects::gvisor());
conformance!(qemu, motu_conformance::subjects::qemu());
