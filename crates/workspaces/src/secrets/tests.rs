use std::{fs, os::unix::fs::PermissionsExt as _};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

fn secret(name: &str, value: &str) -> Secret {
    Secret {
        name: name.to_owned(),
        source: Source::Literal,
        value: Zeroizing::new(value.to_owned()),
    }
}

fn redactor(values: &[(&str, &str)]) -> Redactor {
    let secrets: Vec<_> = values
        .iter()
        .map(|(name, value)| secret(name, value))
        .collect();
    Redactor::new(&secrets).unwrap()
}

#[test]
fn values_are_sealed_for_one_place() {
    let state = TempDir::new().unwrap();
    let vault = Vault::open(state.path()).unwrap();
    let key = state.path().join("secrets.key");
    assert_eq!(key.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let sealed = vault.seal("w1", "TOKEN", "hunter2").unwrap();
    assert!(!sealed.windows(7).any(|part| part == b"hunter2"));
    let again = Vault::open(state.path()).unwrap();
    assert_eq!(
        again.unseal("w1", "TOKEN", &sealed).unwrap().as_str(),
        "hunter2"
    );
    for (workspace, name) in [("w2", "TOKEN"), ("w1", "OTHER"), ("w1\0TOKEN", "")] {
        assert!(again.unseal(workspace, name, &sealed).is_err());
    }
    for at in 0..sealed.len() {
        let mut flipped = sealed.clone();
        flipped[at] ^= 1;
        assert!(again.unseal("w1", "TOKEN", &flipped).is_err());
        assert!(again.unseal("w1", "TOKEN", &sealed[..at]).is_err());
    }
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(
        Vault::open(state.path()),
        Err(SecretError::Key { .. })
    ));
}

#[test]
fn a_file_of_secrets_comes_back() {
    let state = TempDir::new().unwrap();
    let vault = Vault::open(state.path()).unwrap();
    let file = state.path().join("secrets");
    assert!(vault.load(&file, "w").unwrap().is_empty());
    let secrets = [secret("A", "first value"), secret("_b2", "")];
    vault.store(&file, "w", &secrets).unwrap();
    assert_eq!(vault.load(&file, "w").unwrap(), secrets);
    assert_eq!(Vault::list(&file).unwrap()[1].name, "_b2");
    assert!(vault.load(&file, "other").is_err());
    let bytes = fs::read(&file).unwrap();
    assert!(!bytes.windows(5).any(|part| part == b"first"));
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x10;
        fs::write(&file, &flipped).unwrap();
        // The source is public and the only thing not sealed.
        if let Ok(loaded) = vault.load(&file, "w") {
            assert_eq!(loaded[0].value, secrets[0].value);
        }
        fs::write(&file, &bytes[..at]).unwrap();
        assert!(vault.load(&file, "w").is_err());
    }
    let left: Vec<_> = fs::read_dir(state.path()).unwrap().collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn two_first_users_agree_on_one_key() {
    let state = TempDir::new().unwrap();
    let sealed: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let open = || {
            Vault::open(state.path())
                .unwrap()
                .seal("w", "N", "value")
                .unwrap()
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let vault = Vault::open(state.path()).unwrap();
    assert!(
        sealed
            .iter()
            .all(|sealed| vault.unseal("w", "N", sealed).is_ok())
    );
}

#[test]
fn names_and_values_are_checked() {
    let long = "n".repeat(65);
    for name in ["", "1a", "a-b", "a b", "é", long.as_str()] {
        assert!(
            matches!(check(&[secret(name, "v")]), Err(SecretError::Name { .. })),
            "{name}"
        );
    }
    check(&[secret("_", "v"), secret("A1_b", "")]).unwrap();
    let twice = [secret("A", "1"), secret("A", "2")];
    assert!(matches!(check(&twice), Err(SecretError::Twice { .. })));
    assert!(matches!(
        check(&[secret("A", "a\0b")]),
        Err(SecretError::Zero { .. })
    ));
    let huge = "x".repeat(MAX_VALUE_BYTES + 1);
    assert!(matches!(
        check(&[secret("A", &huge)]),
        Err(SecretError::Limit { .. })
    ));
    let many: Vec<_> = (0..65).map(|n| secret(&format!("S{n}"), "v")).collect();
    assert!(matches!(check(&many), Err(SecretError::Limit { .. })));
    assert!(!format!("{:?}", secret("A", "hunter2")).contains("hunter2"));
}

#[test]
fn values_are_taken_out_in_every_form() {
    let value = "s3cr3t/p@ss word\u{e9}";
    let redactor = redactor(&[("TOKEN", value)]);
    let text = |bytes: &str| String::from_utf8(redactor.redact(bytes.as_bytes())).unwrap();
    assert_eq!(text(&format!("a {value} b")), "a [redacted TOKEN] b");
    for before in ["", "a", "ab", "user:", "user:x"] {
        let encoded = STANDARD.encode(format!("{before}{value}after"));
        let shown = text(&encoded);
        assert!(shown.contains("[redacted TOKEN]"), "{before}: {shown}");
        // A few characters on either side belong to both.
        let kept = shown.replace("[redacted TOKEN]", "");
        assert!(
            kept.len() <= (before.len() + 5) * 4 / 3 + 6,
            "{before}: {shown}"
        );
    }
    for encoded in [
        "s3cr3t%2Fp%40ss%20word%C3%A9",
        "s3cr3t%2fp%40ss%20word%c3%a9",
        "s3cr3t%2Fp%40ss+word%C3%A9",
    ] {
        assert_eq!(text(encoded), "[redacted TOKEN]");
    }
    let key = "-----BEGIN KEY-----\nabcdefghijklmnop\nqrstuvwxyz012345\n-----END KEY-----\n";
    let keys = super::Redactor::new(&[secret("KEY", key)]).unwrap();
    let shown = keys.redact(key.replace('\n', "\r\n").as_bytes());
    assert_eq!(shown, b"[redacted KEY]\r\n");
    let line = keys.redact(b"2: qrstuvwxyz012345\n");
    assert_eq!(line, b"2: [redacted KEY]\n");
    assert_eq!(
        keys.redact(serde_json::to_string(key).unwrap().as_bytes()),
        b"\"[redacted KEY]\\n\""
    );
}

#[test]
fn short_values_are_left_alone_and_plain_output_is_not_held() {
    let redactor = redactor(&[("S", "abc"), ("L", "longer value")]);
    let mut stream = redactor.stream();
    assert_eq!(stream.push(b"abc $ "), b"abc $ ");
    assert_eq!(stream.push(b"a lon"), b"a ");
    assert_eq!(stream.push(b"gitude "), b"longitude ");
    assert_eq!(stream.push(b"longer val"), b"");
    assert_eq!(stream.push(b"ue"), b"[redacted L]");
    assert_eq!(stream.push(b"longer"), b"");
    assert_eq!(stream.finish(), b"longer");
}

#[test]
fn overlapping_values_are_covered_whole() {
    let redactor = redactor(&[("A", "abcdef"), ("B", "efghij"), ("C", "cdef")]);
    for split in 0..12 {
        let mut stream = redactor.stream();
        let mut out = stream.push(&b"-abcdefghij+"[..split]);
        out.extend(stream.push(&b"-abcdefghij+"[split..]));
        out.extend(stream.finish());
        let shown = String::from_utf8(out).unwrap();
        assert!(
            ["-[redacted A]+"].contains(&shown.as_str()),
            "{split}: {shown}"
        );
    }
}

#[test]
fn a_hostile_output_costs_no_more() {
    let long = "a".repeat(60_000);
    let value = format!("{long}b");
    let redactor = redactor(&[("A", &value)]);
    let mut stream = redactor.stream();
    let start = std::time::Instant::now();
    for _ in 0..20 {
        let _ = stream.push(&long.as_bytes()[..10_000]);
    }
    assert_eq!(stream.push(b"b"), b"[redacted A]");
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}

/// Redacts by hand: everything that any value covers.
fn covered(text: &[u8], values: &[&str]) -> Vec<bool> {
    let mut covered = vec![false; text.len()];
    for value in values {
        for at in 0..text.len() {
            if text[at..].starts_with(value.as_bytes()) {
                covered[at..at + value.len()].fill(true);
            }
        }
    }
    covered
}

proptest! {
    #[test]
    fn chunks_do_not_matter(
        text in "[ab]{0,60}", values in prop::collection::vec("[ab]{4,7}", 1..4),
        cuts in prop::collection::vec(0..60usize, 0..8),
    ) {
        let named: Vec<_> = values.iter().map(|value| ("N", value.as_str())).collect();
        let redactor = redactor(&named);
        let mut cuts: Vec<_> = cuts.into_iter().filter(|cut| *cut <= text.len()).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let mut stream = redactor.stream();
        let mut out = Vec::new();
        for pair in cuts.windows(2) {
            out.extend(stream.push(&text.as_bytes()[pair[0]..pair[1]]));
        }
        out.extend(stream.finish());
        let values: Vec<_> = values.iter().map(String::as_str).collect();
        let covered = covered(text.as_bytes(), &values);
        let kept: Vec<u8> = text.bytes().zip(&covered).filter(|(_, hidden)| !**hidden).map(|(byte, _)| byte).collect();
        let shown = String::from_utf8(out).unwrap();
        prop_assert_eq!(shown.replace("[redacted N]", "").into_bytes(), kept);
        prop_assert_eq!(shown.contains("redacted"), covered.contains(&true));
    }
}
