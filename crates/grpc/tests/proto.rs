//! The messages, the descriptor and the methods match the `.proto`.

use motu_grpc::{METHODS, wire};
use prost_build::Config;
use protox::prost::Message;
use protox::prost_reflect::DescriptorPool;
use std::path::{Path, PathBuf};

fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Compiles the checked-in file, with its comments.
fn compiled() -> protox::prost_reflect::prost_types::FileDescriptorSet {
    let proto = here().join("proto");
    protox::compile(["hostagent/v1/hostagent.proto"], [proto]).expect("the .proto compiles")
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
    Config::new()
        .bytes(["."])
        .disable_comments(["."])
        .out_dir(&out)
        .compile_fds(compiled())
        .expect("prost compiles it");
    let made = std::fs::read(out.join("hostagent.v1.rs")).expect("one file per package");
    std::fs::remove_dir_all(&out).expect("nobody else has it");
    same(&here().join("src/wire/generated.rs"), &made);
}

#[test]
fn the_descriptor_is_that_of_the_proto() {
    let mut files = compiled();
    // Reflection does not use comments and source positions.
    for file in &mut files.file {
        file.source_code_info = None;
    }
    same(
        &here().join("src/wire/hostagent.binpb"),
        &files.encode_to_vec(),
    );
}

#[test]
fn every_method_of_the_proto_is_served_and_no_other() {
    let pool = DescriptorPool::decode(wire::DESCRIPTOR).expect("a descriptor");
    let service = pool
        .get_service_by_name(wire::SERVICE)
        .expect("the service");
    let declared: Vec<String> = service
        .methods()
        .map(|method| method.name().to_string())
        .collect();
    assert_eq!(METHODS, declared);
}
