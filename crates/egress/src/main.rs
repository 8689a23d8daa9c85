//! The gateway as a separate program, for the tests and the benchmark of this crate. In the product
//! it is a hidden command of `motu`.

fn main() {
    std::process::exit(motu_egress::gateway::run());
}
