use super::*;
use motu_core::ErrorKind;

fn value(text: &str) -> SetSecret {
    SetSecret {
        value: Some(text.to_string()),
        ..SetSecret::default()
    }
}

#[test]
fn values_are_sealed_and_replaced_whole() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    set(home, "api-key", value("hunter2-hunter2")).unwrap();
    let first = list(home).unwrap();
    assert_eq!(first.len(), 1);
    assert_eq!(first[0].source_kind, "sealed");
    let text = std::fs::read_to_string(home.join("secrets/api-key.json")).unwrap();
    assert!(!text.contains("hunter2"), "{text}");
    let rotate = SetSecret {
        rotate: true,
        ..value("correct horse")
    };
    let rotated = set(home, "api-key", rotate.clone()).unwrap();
    assert_eq!(rotated.created_at, first[0].created_at);
    let missing = set(home, "other", rotate).unwrap_err();
    assert_eq!(missing.kind, ErrorKind::NotFound);
    assert_eq!(std::fs::read_dir(home.join("secrets")).unwrap().count(), 1);
    remove(home, "api-key").unwrap();
    assert_eq!(list(home).unwrap(), []);
    assert_eq!(
        remove(home, "api-key").unwrap_err().kind,
        ErrorKind::NotFound
    );
}

#[test]
fn what_is_no_secret_is_refused() {
    let home = tempfile::tempdir().unwrap();
    for name in ["../x", "", ".x", "a b", &"x".repeat(65)] {
        let error = set(home.path(), name, value("v")).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid, "{name:?}");
    }
    for ask in [
        SetSecret::default(),
        value(""),
        value("a\0b"),
        SetSecret {
            variable: Some("X".to_string()),
            ..value("v")
        },
        SetSecret {
            command: Some(Vec::new()),
            ..SetSecret::default()
        },
    ] {
        assert_eq!(
            set(home.path(), "x", ask).unwrap_err().kind,
            ErrorKind::Invalid
        );
    }
    let large = "x".repeat(limits::SECRET_BYTES.max as usize + 1);
    assert_eq!(
        set(home.path(), "x", value(&large)).unwrap_err().kind,
        ErrorKind::Limit
    );
}

#[test]
fn a_binding_is_kept_when_the_value_is_rotated() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let bound = |hosts: &[&str]| SetSecret {
        hosts: hosts.iter().map(|host| host.to_string()).collect(),
        ..value("hunter2")
    };
    let made = set(home, "key", bound(&["API.example.com", "*.b.example"])).unwrap();
    assert_eq!(made.hosts, ["api.example.com", "*.b.example"]);
    let rotate = SetSecret {
        rotate: true,
        ..value("n3w")
    };
    assert_eq!(set(home, "key", rotate.clone()).unwrap().hosts, made.hosts);
    let rebind = SetSecret {
        hosts: vec!["c.example".to_string()],
        ..rotate
    };
    for ask in [
        rebind,
        bound(&["*"]),
        bound(&["10.0.0.1"]),
        bound(&["a b"]),
        SetSecret {
            body: true,
            ..value("x")
        },
        SetSecret {
            body: true,
            aws: true,
            ..bound(&["a.example"])
        },
        SetSecret {
            value: Some("two\nlines".to_string()),
            ..bound(&["a.example"])
        },
    ] {
        let error = set(home, "key", ask).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
    }
    assert_eq!(set(home, "key", value("x")).unwrap().hosts, [""; 0]);
    let many = vec!["a.example"; limits::SECRET_HOSTS.max as usize + 1];
    let error = set(home, "key", bound(&many)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Limit);
}

#[test]
fn a_key_of_ssh_is_checked_and_its_fingerprint_is_told() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("key");
    let made = motu_needs::command("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "x", "-f"])
        .arg(&file)
        .status();
    assert!(made.unwrap().success());
    let key = std::fs::read_to_string(&file).unwrap();
    let public = std::fs::read_to_string(file.with_extension("pub")).unwrap();
    let ask = |hosts: &[&str]| SetSecret {
        hosts: hosts.iter().map(|host| host.to_string()).collect(),
        ssh: true,
        known_hosts: Some(format!("git.example {public}")),
        ..value(&key)
    };
    let kept = set(home.path(), "deploy", ask(&["git.example"])).unwrap();
    assert_eq!(kept.key_type.as_deref(), Some("ssh-ed25519"));
    let print = kept.fingerprint.clone().unwrap();
    assert!(print.starts_with("SHA256:"), "{print}");
    let body = key.lines().nth(1).unwrap();
    let text = std::fs::read_to_string(home.path().join("secrets/deploy.json")).unwrap();
    assert!(!text.contains(body), "{text}");
    let rotate = SetSecret {
        rotate: true,
        ..value(&key)
    };
    assert_eq!(
        set(home.path(), "deploy", rotate).unwrap().fingerprint,
        Some(print)
    );
    let fine = || ask(&["git.example"]);
    for wrong in [
        ask(&["*.example"]),
        ask(&["other.example"]),
        ask(&[]),
        SetSecret {
            aws: true,
            ..fine()
        },
        SetSecret {
            ssh: false,
            ..fine()
        },
        SetSecret {
            known_hosts: None,
            ..fine()
        },
        SetSecret {
            value: Some("x".to_string()),
            ..fine()
        },
        SetSecret {
            value: None,
            variable: Some("X".to_string()),
            ..fine()
        },
        SetSecret {
            rotate: true,
            ..fine()
        },
        SetSecret {
            rotate: true,
            ..value("one line")
        },
        SetSecret {
            rotate: true,
            variable: Some("X".to_string()),
            ..SetSecret::default()
        },
    ] {
        let error = set(home.path(), "deploy", wrong).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
        assert!(
            error.hint.is_some() && !error.message.contains(body),
            "{error}"
        );
    }
    let large = SetSecret {
        known_hosts: Some(" ".repeat(262_145)),
        ..fine()
    };
    assert_eq!(
        set(home.path(), "deploy", large).unwrap_err().kind,
        ErrorKind::Limit
    );
}

#[tokio::test]
async fn a_command_prints_its_secret_and_its_failures_print_none() {
    let sh = |script: &str| ["sh", "-c", script].map(str::to_string);
    let value = printed("x", &sh("echo hunter2")).await.unwrap();
    assert_eq!(*value, "hunter2");
    let error = printed("x", &sh("echo hunter2; exit 3")).await.unwrap_err();
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
    assert!(printed("x", &sh("true")).await.is_err());
    assert!(printed("x", &["/nowhere".to_string()]).await.is_err());
}
