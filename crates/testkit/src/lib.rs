//! Fixtures of tests with the real program: state directories with a daemon, users of the host,
//! networks, container engines. And of tests of one face: answers in the place of machines.
//!
//! - [`answers`]: what a recorder is told to answer.
//! - [`story`]: a state directory in which commands run as a user runs them.
//! - [`host`]: the same with an address, and requests to it.
//! - [`world`]: a state directory whose daemon the test starts and kills, and what may not be left
//!   of it ([`traces`]).
//! - [`network`]: a daemon and servers in network namespaces of the test.
//! - [`user`]: an ordinary user of the host; [`network::user`] has one with a network.
//! - [`builds`]: state directories and projects for builds.
//! - [`engine`]: Docker or Podman with its data in a directory of the test.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

pub mod answers;
pub mod builds;
pub mod directory;
pub mod engine;
pub mod host;
pub mod network;
pub mod screen;
pub mod story;
pub mod traces;
pub mod user;
pub mod world;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// The path of the `motu` under test. Cargo builds it before the integration tests of `crates/cli`,
/// in the directory above theirs: `target/debug/motu` for `target/debug/deps/stories-…`.
pub fn program() -> &'static str {
    static PROGRAM: LazyLock<String> = LazyLock::new(|| {
        let test = std::env::current_exe().unwrap();
        let built = test.parent().and_then(Path::parent).unwrap().join("motu");
        assert!(
            built.is_file(),
            "{} does not exist: only integration tests of crates/cli may run it",
            built.display()
        );
        built.into_os_string().into_string().unwrap()
    });
    &PROGRAM
}

/// What `motu doctor` says of this host; asked once for all tests.
pub fn doctor() -> serde_json::Value {
    let answer = motu_needs::probes::doctor(Path::new(program()));
    serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

/// Whether machines of a runtime can be created here; else the report on it.
pub fn works(runtime: &str) -> Result<(), String> {
    let report = doctor();
    let mut runtimes = report["runtimes"].as_array().into_iter().flatten();
    match runtimes.find(|found| found["name"] == runtime) {
        Some(found) if found["works"] == true => Ok(()),
        found => Err(format!("{runtime} does not work here: {found:?}")),
    }
}

/// The directory of the sources.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The environments that all tests share, as a path without links. `tools/suite` pulls them.
pub fn environments() -> PathBuf {
    let home = root().join("target/test-home");
    std::fs::create_dir_all(&home).unwrap();
    home.canonicalize().unwrap().join("environments")
}
