//! Every check for every runtime. A runtime joins here with one line.

use motu_conformance::{conformance, conformance_together, terminals};

conformance!(fake, motu_conformance::subjects::fake());
conformance!(host, motu_conformance::subjects::host());
conformance!(proot, motu_conformance::subjects::proot());
conformance!(container, motu_conformance::subjects::container());
// Their machines take long: some checks share one.
conformance_together!(gvisor, motu_conformance::subjects::gvisor());
conformance_together!(qemu, motu_conformance::subjects::qemu());

/// The same, each check on a machine of its own: `make conformance`.
mod each {
    use motu_conformance::{conformance, terminals};

    conformance!(gvisor, motu_conformance::subjects::gvisor());
    conformance!(qemu, motu_conformance::subjects::qemu());
    // Each of its machines is a copy of a whole Debian.
    terminals!(terminals_on_proot, motu_conformance::subjects::proot());
}

terminals!(terminals_on_host, motu_conformance::subjects::host());
terminals!(
    terminals_on_container,
    motu_conformance::subjects::container()
);
terminals!(terminals_on_gvisor, motu_conformance::subjects::gvisor());
terminals!(terminals_on_qemu, motu_conformance::subjects::qemu());
