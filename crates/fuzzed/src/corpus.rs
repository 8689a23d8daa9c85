//! Runs a function on the files of its corpus and on mutations of them, and compares the list of
//! functions with what is in `fuzz` and in `corpus`.

use crate::TARGETS;
use crate::mutation::{Random, mutate};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Mutations for each function, spread over the files of its corpus.
const MUTATIONS: usize = 400;
/// Time for one input. A few milliseconds are usual: this ends what would never end.
const INPUT_TIME: Duration = Duration::from_secs(20);
/// Bounds of the corpus of one function, since git keeps every version: `tools/fuzz` has the same.
const FILES: usize = 60;
const FILE_BYTES: usize = 4096;
const BYTES: usize = 40_960;

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(name)
}

/// The inputs kept for a function, with the names of their files, in order.
fn inputs(name: &str) -> Vec<(String, Vec<u8>)> {
    let directory = directory(name);
    let entries = std::fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("no corpus in {}: {error}", directory.display()));
    let mut inputs: Vec<_> = entries
        .map(|entry| {
            let entry = entry.unwrap();
            let file = entry.file_name().into_string().unwrap();
            (file, std::fs::read(entry.path()).unwrap())
        })
        .collect();
    inputs.sort();
    assert!(!inputs.is_empty(), "{} is empty", directory.display());
    inputs
}

/// Runs a function on its corpus and on mutations of it.
pub(crate) fn run(name: &str, function: fn(&[u8])) {
    let inputs = inputs(name);
    let mut random = Random::new(name);
    let mut all = inputs.clone();
    for number in 0..MUTATIONS {
        let (file, input) = &inputs[number % inputs.len()];
        let (_, other) = &inputs[random.below(inputs.len())];
        let mutation = mutate(input, other, &mut random);
        all.push((format!("mutation {number}, of {file}"), mutation));
    }
    // In a thread of its own: an input that never ends is named, and does not hang the test.
    let (done, ends) = channel();
    let (work, taken) = channel::<Vec<u8>>();
    let runner = std::thread::spawn(move || {
        for input in taken {
            function(&input);
            done.send(()).unwrap();
        }
    });
    for (what, input) in all {
        let shown = input.escape_ascii().to_string();
        work.send(input).unwrap();
        match ends.recv_timeout(INPUT_TIME) {
            Ok(()) => {}
            Err(RecvTimeoutError::Timeout) => {
                panic!("{name} takes more than {INPUT_TIME:?} for {what}: {shown}")
            }
            Err(RecvTimeoutError::Disconnected) => panic!("{name} fails for {what}: {shown}"),
        }
    }
    drop(work);
    runner.join().unwrap();
}

#[test]
fn the_fuzzer_runs_every_function_on_the_list_and_no_other() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let manifest = std::fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    let listed: BTreeSet<String> = TARGETS.iter().map(|(name, _)| name.to_string()).collect();
    assert_eq!(listed.len(), TARGETS.len());
    let mut programs = BTreeSet::new();
    for entry in std::fs::read_dir(fuzz.join("fuzz_targets")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.contains(&format!("motu_fuzzed::{name}(data)")),
            "{} calls another function than its own",
            path.display()
        );
        assert!(
            manifest.contains(&format!("name = \"{name}\"\n")),
            "fuzz/Cargo.toml has no [[bin]] named {name}"
        );
        programs.insert(name);
    }
    assert_eq!(programs, listed, "fuzz/fuzz_targets (left) and the list");
}

#[test]
fn every_corpus_is_that_of_a_function_and_within_its_bounds() {
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(directory("")).unwrap() {
        names.insert(entry.unwrap().file_name().into_string().unwrap());
    }
    let listed: BTreeSet<String> = TARGETS.iter().map(|(name, _)| name.to_string()).collect();
    assert_eq!(names, listed, "corpus (left) and the list");
    for (name, _) in TARGETS {
        let inputs = inputs(name);
        assert!(inputs.len() <= FILES, "{name} has {} files", inputs.len());
        let bytes: usize = inputs.iter().map(|(_, input)| input.len()).sum();
        assert!(bytes <= BYTES, "{name} has {bytes} bytes");
        for (file, input) in inputs {
            assert!(input.len() <= FILE_BYTES, "{name}/{file} is too large");
        }
    }
}
