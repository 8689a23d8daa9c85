//! State directories and projects for tests of builds.

use crate::environments;
use crate::story::{Story, Told};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// A state directory with the trees that all tests share; what is built stays in this directory.
pub fn world_of_its_own() -> Option<Story> {
    if !environments().join("names/debian%3A12.json").exists() {
        motu_needs::skip("building: debian:12 is not pulled into target/test-home");
        return None;
    }
    let story = Story::new();
    story.configure("runtime = \"container\"\n");
    own_environments(&story);
    motu_needs::probes::warm(&story.home());
    motu_needs::probes::share_machines(&story.home());
    Some(story)
}

/// Gives a state directory its own names for the trees that all tests share.
pub fn own_environments(story: &Story) {
    let shared = environments();
    let own = story.home().join("environments");
    // This may be a link to the directory that all tests share.
    let _ = fs::remove_file(&own);
    for dir in ["blobs", "names"] {
        fs::create_dir_all(own.join(dir)).unwrap();
        for entry in fs::read_dir(shared.join(dir)).unwrap() {
            let entry = entry.unwrap();
            let to = own.join(dir).join(entry.file_name());
            match dir {
                "blobs" => symlink(entry.path().canonicalize().unwrap(), to).unwrap(),
                _ => drop(fs::copy(entry.path(), to).unwrap()),
            }
        }
    }
}

/// The name of the environment with compilers, if it exists.
pub fn compilers() -> Option<String> {
    let names = fs::read_dir(environments().join("names")).unwrap();
    let mut names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let found = names.find(|name| name.contains("compilers-"))?;
    let name = found.trim_end_matches(".json");
    Some(name.replace("%3A", ":").replace("%2F", "/"))
}

pub fn project(story: &Story, name: &str, files: &[(&str, &str)]) -> PathBuf {
    let dir = story.path().join(name);
    for (path, text) in files {
        let path = dir.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

pub fn build(story: &Story, dir: &Path, more: &[&str]) -> Told {
    let mut args = vec!["env", "build", "--json"];
    args.extend(more);
    args.push(dir.to_str().unwrap());
    story.motu(&args)
}

/// The last line of a successful build.
pub fn built(told: &Told) -> Value {
    assert_eq!(told.code, 0, "{told}");
    serde_json::from_str(told.stdout.lines().last().unwrap()).unwrap()
}

pub fn counts(built: &Value) -> (u64, u64) {
    let report = &built["build"];
    (
        report["steps"].as_u64().unwrap(),
        report["cached"].as_u64().unwrap(),
    )
}

pub fn says(story: &Story, args: &[&str], expected: &str) {
    let told = story.motu(args);
    assert_eq!((told.code, told.stdout.trim()), (0, expected), "{told}");
}

/// The runtimes that work here and keep the changes of their machines.
pub fn able() -> Vec<String> {
    let reports = crate::doctor();
    let works = |report: &&Value| {
        let can = report["capabilities"].as_array().unwrap();
        report["works"] == true && can.iter().any(|name| name == "keep")
    };
    let runtimes = reports["runtimes"].as_array().unwrap().iter().filter(works);
    runtimes
        .map(|report| report["name"].as_str().unwrap().to_string())
        .filter(|name| ["container", "gvisor", "qemu"].contains(&name.as_str()))
        .collect()
}
