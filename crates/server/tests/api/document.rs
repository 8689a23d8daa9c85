//! The OpenAPI document in `docs/` is the one the server serves.

use std::path::Path;

#[test]
fn the_document_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let mut current = serde_json::to_string_pretty(&motu_server::openapi()).unwrap();
    current.push('\n');
    if std::env::var_os("MOTU_UPDATE").is_some() {
        std::fs::write(&path, &current).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == current,
        "docs/openapi.json is out of date; run with MOTU_UPDATE=1"
    );
}
