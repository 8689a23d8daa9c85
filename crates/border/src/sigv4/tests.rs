use super::*;
use crate::secret::{Secret, Value};
use crate::swap::tests::PLACE;
use std::sync::Arc;

/// The example key of the AWS documentation.
const KEY: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

fn place(placeholder: &str, value: &str) -> Place {
    let secret = Secret {
        name: "aws".to_owned(),
        placeholder: placeholder.to_owned(),
        value: Value::new(value),
        body: false,
        aws: true,
    };
    Place {
        name: "example.amazonaws.com".to_owned(),
        port: 443,
        secrets: Arc::new(vec![secret]),
    }
}

/// The request `get-vanilla` of the test suite that AWS publishes for signature version 4.
fn vanilla(signature: &str) -> Request {
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
         SignedHeaders=host;x-amz-date, Signature={signature}"
    );
    let headers = [
        ("host", "example.amazonaws.com"),
        ("x-amz-date", "20150830T123600Z"),
        ("authorization", &authorization),
    ];
    Request {
        method: "GET".to_owned(),
        host: Some("example.amazonaws.com".to_owned()),
        port: None,
        path: "/".to_owned(),
        query: String::new(),
        headers: headers
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
    }
}

const VANILLA: &str = "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31";

#[test]
fn the_published_example_has_the_published_signature() {
    let place = place(KEY, "another key");
    let request = vanilla(VANILLA);
    let signed = read(&request, &place).unwrap().unwrap();
    assert!(signed.needs_body());
    let (name, header) = signed.again(&request, &request, b"", &place).unwrap();
    assert_eq!(name, "aws");
    assert!(header.contains("Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request"));
    assert!(!header.contains(VANILLA));
}

#[test]
fn what_was_signed_with_the_placeholder_is_signed_with_the_key() {
    let own = place(PLACE, KEY);
    let mut request = vanilla("");
    let signed = read(&request, &own).unwrap().unwrap();
    let hash = hex(digest::digest(&digest::SHA256, b"").as_ref());
    let theirs = signed.sign(&request, "/", &hash, PLACE).unwrap();
    request = vanilla(&theirs);
    let signed = read(&request, &own).unwrap().unwrap();
    let (_, header) = signed.again(&request, &request, b"", &own).unwrap();
    assert!(
        header.ends_with(&format!("Signature={VANILLA}")),
        "{header}"
    );
    // Another body or key: the signature does not match.
    assert_eq!(
        signed.again(&request, &request, b"x", &own).err(),
        Some(Refusal::Signature)
    );
    let foreign = vanilla(VANILLA);
    let signed = read(&foreign, &own).unwrap().unwrap();
    assert_eq!(
        signed.again(&foreign, &foreign, b"", &own).err(),
        Some(Refusal::Signature)
    );
}

#[test]
fn what_cannot_be_signed_again_is_refused() {
    let own = place(PLACE, KEY);
    let mut presigned = vanilla(VANILLA);
    presigned.query = "a=b&X-Amz-Signature=00".to_owned();
    assert_eq!(read(&presigned, &own).err(), Some(Refusal::Presigned));
    let mut chunks = vanilla(VANILLA);
    let streaming = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
    chunks.headers.push((HASH.to_owned(), streaming.to_owned()));
    assert_eq!(read(&chunks, &own).err(), Some(Refusal::ChunkSigned));
    for text in [
        "AWS4-ECDSA-P256-SHA256 x",
        "AWS4-HMAC-SHA256 Credential=a/b",
        "AWS4-HMAC-SHA256 Credential=a/20150830/r/s/aws4_request, SignedHeaders=x-amz-date, Signature=0",
        "AWS4-HMAC-SHA256 Signature=0, Signature=1",
    ] {
        let mut request = vanilla(VANILLA);
        request.headers[2].1 = text.to_owned();
        assert_eq!(
            read(&request, &own).err(),
            Some(Refusal::Signature),
            "{text}"
        );
    }
    let mut other = vanilla(VANILLA);
    other.headers[2].1 = "Bearer x".to_owned();
    assert!(read(&other, &own).unwrap().is_none());
}
