//! Every runtime, every check. A runtime joins here with one line.

use motu_conformance::conformance;

conformance!(fake, motu_conformance::subjects::fake());
