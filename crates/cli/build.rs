//! Builds the guest, a static program, so that it can be carried inside `motu`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What the guest is made of.
const SOURCES: [&str; 7] = [
    "crates/archive",
    "crates/boot",
    "crates/guest",
    "crates/link",
    "crates/launch",
    "Cargo.toml",
    "Cargo.lock",
];

fn main() {
    // Asked now and told as relative paths: in a target directory that was copied, a path that was
    // compiled in leads to the sources that it was copied from.
    let workspace = Path::new(&variable("CARGO_MANIFEST_DIR")).join("../..");
    for source in SOURCES {
        println!("cargo::rerun-if-changed=../../{source}");
    }
    link_at_a_fixed_address();
    let built = build_guest(&workspace);
    let carried = PathBuf::from(variable("OUT_DIR")).join("motu-guest");
    std::fs::copy(&built, &carried)
        .unwrap_or_else(|error| panic!("cannot copy {}: {error}", built.display()));
}

/// A command lives for milliseconds, and moving a hundred thousand pointers to an address of chance would be a third of
/// them. Stack and heap are still where chance puts them. With musl it takes a flag of the compiler (`tools/static`),
/// because a program that cannot be moved begins with other objects.
fn link_at_a_fixed_address() {
    if variable("CARGO_CFG_TARGET_ENV") == "gnu" {
        println!("cargo::rustc-link-arg-bins=-no-pie");
        link_the_c_library();
    }
}

/// Links the GNU C library into the program, where the host has it as an archive: finding and binding shared libraries
/// was a third of what a short command did itself.
///
/// The compiler asks for shared libraries by name. Here their names lead to archives, in a directory that is looked
/// through first, so that procedural macros and build scripts are linked as ever.
fn link_the_c_library() {
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    let linker = match std::env::var("RUSTC_LINKER") {
        Ok(linker) => linker,
        Err(_) if variable("HOST") == variable("TARGET") => "cc".to_string(),
        // Who links for another kind of machine is told in a way that this script does not see.
        Err(_) => return,
    };
    let found = ["libc.a", "libm.a", "libgcc_eh.a", "libgcc.a"].map(|name| archive(&linker, name));
    let [Some(c), Some(m), Some(unwinder), Some(arithmetic)] = found else {
        return;
    };
    let place = PathBuf::from(variable("OUT_DIR")).join("archives");
    std::fs::create_dir_all(&place).unwrap_or_else(|error| panic!("no directory: {error}"));
    let group = |name: &str, members: &[&str]| {
        let members: Vec<String> = members.iter().map(|path| format!("\"{path}\"")).collect();
        let text = format!("GROUP({})\n", members.join(" "));
        std::fs::write(place.join(name), text).unwrap_or_else(|error| panic!("{name}: {error}"));
    };
    // Each needs the others.
    group("libc.a", &[&c, &unwinder, &arithmetic]);
    group("libgcc_s.a", &[&unwinder, &arithmetic]);
    group("libm.a", &[&m]);
    // Parts of it of their own before version 2.34, and empty since.
    for part in ["libdl.a", "libpthread.a", "librt.a", "libutil.a"] {
        if let Some(archive) = archive(&linker, part) {
            group(part, &[&archive]);
        }
    }
    println!("cargo::rustc-link-arg-bins=-static");
    println!("cargo::rustc-link-arg-bins=-L{}", place.display());
}

/// Where an archive lies that the linker would find under this name.
fn archive(linker: &str, name: &str) -> Option<String> {
    let asked = Command::new(linker)
        .arg(format!("-print-file-name={name}"))
        .output();
    let path = String::from_utf8(asked.ok()?.stdout).ok()?;
    let path = path.trim();
    // A linker that knows none says the name again.
    let found = Path::new(path).is_absolute().then(|| path.to_string())?;
    println!("cargo::rerun-if-changed={found}");
    Some(found)
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}

/// What the guest is built for. It is static in any case, so beside a motu with musl it is the same guest that the tests
/// know, wherever the host that builds has the GNU library.
fn guest_triple(target: &str, host: &str) -> String {
    match target.strip_suffix("-musl") {
        Some(system) if host.ends_with("-gnu") => format!("{system}-gnu"),
        _ => target.to_string(),
    }
}

fn build_guest(workspace: &Path) -> PathBuf {
    let triple = guest_triple(&variable("TARGET"), &variable("HOST"));
    // A directory of its own: the build that runs this script holds the lock of the usual one.
    let target_dir = workspace.join("target/guest");
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .current_dir(workspace)
        .args([
            "build",
            "--quiet",
            "--locked",
            "-p",
            "motu-guest",
            "--bin",
            "motu-guest",
        ])
        .args(["--profile", "guest", "--target", &triple])
        .arg("--target-dir")
        .arg(&target_dir);
    // What cargo, clippy and coverage tools set for this build does not concern the guest's; where things are on this host
    // does.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        let linker = name.starts_with("CARGO_TARGET_") && name.ends_with("_LINKER");
        let host = name == "CARGO_HOME" || name.starts_with("CARGO_NET_") || linker;
        let ours = name.starts_with("CARGO_") && !host;
        if ours || name.starts_with("RUSTC") || name == "RUSTFLAGS" || name == "RUSTDOCFLAGS" {
            cargo.env_remove(&*name);
        }
    }
    cargo.env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static");
    let status = cargo.status().expect("cargo runs");
    assert!(status.success(), "the guest does not build");
    target_dir.join(triple).join("guest/motu-guest")
}
