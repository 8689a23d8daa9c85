//! The messages, the descriptors and the methods match the `.proto`s.

use motu_grpc::{EVENT_METHODS, METHODS, wire};
use prost_build::Config;
use protox::prost::Message;
use protox::prost_reflect::DescriptorPool;
use std::path::{Path, PathBuf};

/// A `.proto`, the file of its messages as prost names it, where they are checked in, and the
/// descriptor.
const FILES: [(&str, &str, &str, &str); 2] = [
    (
        "hostagent/v1/hostagent.proto",
        "hostagent.v1.rs",
        "generated.rs",
        "hostagent.binpb",
    ),
    (
        "events/v1/events.proto",
        "motu.v1.rs",
        "events/generated.rs",
        "events.binpb",
    ),
];

fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Compiles a checked-in file, with its comments.
fn compiled(file: &str) -> protox::prost_reflect::prost_types::FileDescriptorSet {
    let proto = here().join("proto");
    protox::compile([file], [proto]).expect("the .proto compiles")
}

/// Compares a generated file with the checked-in one, or writes it.
fn same(path: &Path, made: &[u8]) {
    if std::env::var_os("MOTU_UPDATE").is_some() {
        std::fs::write(path, made).expect("the file is writable");
        return;
    }
    let found = std::fs::read(path).expect("the file is checked in");
    assert!(
        found == made,
        "{} is not what the .proto says; MOTU_UPDATE=1 writes it",
        path.display()
    );
}

#[test]
fn messages_are_made_from_the_proto() {
    let out = std::env::temp_dir().join(format!("motu-proto-{}", std::process::id()));
    std::fs::create_dir_all(&out).expect("a place for the result");
    for (proto, name, place, _) in FILES {
        Config::new()
            .bytes(["."])
            .disable_comments(["."])
            .out_dir(&out)
            .compile_fds(compiled(proto))
            .expect("prost compiles it");
        let made = std::fs::read(out.join(name)).expect("one file per package");
        same(&here().join("src/wire").join(place), &made);
    }
    std::fs::remove_dir_all(&out).expect("nobody else has it");
}

#[test]
fn the_descriptor_is_that_of_the_proto() {
    for (proto, _, _, place) in FILES {
        let mut files = compiled(proto);
        // Reflection does not use comments and source positions.
        for file in &mut files.file {
            file.source_code_info = None;
        }
        same(&here().join("src/wire").join(place), &files.encode_to_vec());
    }
}

#[test]
fn every_method_of_the_proto_is_served_and_no_other() {
    for (descriptor, service, methods) in [
        (wire::DESCRIPTOR, wire::SERVICE, METHODS),
        (
            wire::events::DESCRIPTOR,
            wire::events::SERVICE,
            EVENT_METHODS,
        ),
    ] {
        let pool = DescriptorPool::decode(descriptor).expect("a descriptor");
        let service = pool.get_service_by_name(service).expect("the service");
        let declared: Vec<String> = service
            .methods()
            .map(|method| method.name().to_string())
            .collect();
        assert_eq!(methods, declared);
    }
}
