//! The gateway as a program of its own, for the tests and the benchmark of this crate. In the
//! product it is a hidden command of `motu`.

fn main() {
    std::process::exit(motu_egress::gateway::run());
}
