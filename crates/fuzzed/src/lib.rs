//! What hostile bytes are fed to: one function for each parser of foreign bytes.
//!
//! A function takes any bytes, and panics where the parser does, or where a promise of the parser
//! is broken. `fuzz/fuzz_targets` has a program for each, which `make fuzz` runs with inputs that
//! libFuzzer invents. What it found worth keeping is in `corpus/NAME`; the tests of this crate run
//! each function on those files, and on mutations of them.

mod api_frames;
mod archive;
mod audit;
mod border;
mod border_agent;
mod border_h1;
mod border_h2;
mod disk_image;
mod dockerfile;
mod e2b_envelopes;
mod egress_dns;
mod egress_flight;
mod egress_frames;
mod egress_proxy;
mod http_lines;
mod layer_entries;
mod link_frames;
mod link_host;
mod link_messages;
mod qmp_lines;
mod recording;
mod redaction;
mod terminal_bytes;
mod text_patch;
mod workspace_archive;

#[cfg(test)]
mod corpus;
#[cfg(test)]
mod mutation;

/// Exports the function of each module by the module's name, lists them, and makes a test of each.
macro_rules! targets {
    ($($name:ident,)*) => {
        $(pub use $name::$name;)*

        /// Every function by its name, which is also the name of its program in `fuzz/fuzz_targets`
        /// and of its directory in `corpus`.
        pub const TARGETS: &[(&str, fn(&[u8]))] = &[$((stringify!($name), $name)),*];

        #[cfg(test)]
        mod corpora {
            $(
                #[test]
                fn $name() {
                    crate::corpus::run(stringify!($name), crate::$name);
                }
            )*
        }
    };
}

targets! {
    api_frames,
    archive,
    audit,
    border_agent,
    border_h1,
    border_h2,
    disk_image,
    dockerfile,
    e2b_envelopes,
    egress_dns,
    egress_flight,
    egress_frames,
    egress_proxy,
    http_lines,
    layer_entries,
    link_frames,
    link_host,
    link_messages,
    qmp_lines,
    recording,
    redaction,
    terminal_bytes,
    text_patch,
    workspace_archive,
}
