use std::{fs, os::unix::fs::PermissionsExt as _};

use tempfile::TempDir;

use super::*;

fn secret(name: &str, value: &str) -> Secret {
    Secret {
        name: name.to_owned(),
        source: Source::Literal,
        value: Zeroizing::new(value.to_owned()),
    }
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
fn a_key_is_made_once_and_no_other_takes_its_place() {
    let state = TempDir::new().unwrap();
    let key = state.path().join("secrets.key");
    let sealed = Vault::open(state.path()).unwrap().seal("w", "N", "value");
    let sealed = sealed.unwrap();
    let first = fs::read(&key).unwrap();
    fs::remove_file(&key).unwrap();
    for _ in 0..2 {
        for error in [
            Vault::open(state.path()).unwrap_err(),
            Vault::check(state.path()).unwrap_err(),
        ] {
            assert!(matches!(error, SecretError::Gone { .. }), "{error}");
        }
        assert!(!key.exists());
    }
    let put = |bytes: &[u8]| {
        fs::write(&key, bytes).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    };
    put(&[7; 32]);
    let error = Vault::open(state.path()).unwrap_err();
    assert!(matches!(error, SecretError::Another { .. }), "{error}");
    put(&first);
    let vault = Vault::open(state.path()).unwrap();
    assert_eq!(vault.unseal("w", "N", &sealed).unwrap().as_str(), "value");
    // A key of an earlier version has no id; secrets say that there was one.
    for used in ["secrets/api.json", "kept/ws-1/workspace.json"] {
        let state = TempDir::new().unwrap();
        let file = state.path().join(used);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, r#"{"secrets":[{"name":"N","sealed":[1]}]}"#).unwrap();
        let error = Vault::open(state.path()).unwrap_err();
        assert!(matches!(error, SecretError::Gone { .. }), "{used}: {error}");
    }
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
        // The source is public and the only part that is not sealed.
        if let Ok(loaded) = vault.load(&file, "w") {
            assert_eq!(loaded[0].value, secrets[0].value);
        }
        fs::write(&file, &bytes[..at]).unwrap();
        assert!(vault.load(&file, "w").is_err());
    }
    let left: Vec<_> = fs::read_dir(state.path()).unwrap().collect();
    // The file, the key and its id.
    assert_eq!(left.len(), 3, "{left:?}");
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
