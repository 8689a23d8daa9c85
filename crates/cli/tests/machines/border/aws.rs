//! A real AWS client signs with a placeholder; the gateway signs again with the real key.

use super::{FIRST, PORT, SECOND, Sea};
use std::path::{Path, PathBuf};

/// The directory of the client's library, if it is installed.
fn library() -> Option<PathBuf> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/clients/aws/lib");
    // One directory, named for the host's Python; nothing in it is built for that version.
    let version = std::fs::read_dir(&place)
        .ok()
        .and_then(|mut all| all.next());
    let Some(Ok(version)) = version else {
        motu_needs::skip("border: no client of AWS (tools/setup test)");
        return None;
    };
    Some(version.path().join("site-packages"))
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/machines/border")
        .join(name)
}

#[test]
fn what_a_client_of_aws_signs_is_signed_with_the_key() {
    let Some(library) = library() else { return };
    let Some(sea) = Sea::new("container") else {
        return;
    };
    sea.given(
        &["secret", "set", "key", "--host", "good.example", "--aws"],
        FIRST,
    );
    let library = library.to_str().unwrap();
    let id = sea.workspace(&["--secret-ref", "SECRET_KEY=key", "--seed-path", library]);
    let asks = std::fs::read_to_string(script("aws_asks.py")).unwrap();
    let endpoint = format!("https://good.example:{PORT}");
    let ask = || {
        let before = sea.lines().len();
        let told = sea.motu(&[
            "exec",
            &id,
            "--timeout-seconds",
            "120",
            "--",
            "python3",
            "-c",
            &asks,
            &endpoint,
        ]);
        assert_eq!(told.code, 0, "{told}");
        assert_eq!(sea.lines().len(), before + 4, "{told}");
    };
    let check = |key: &str| {
        let done = motu_needs::command("python3")
            .arg(script("aws_check.py"))
            .args([library, key])
            .arg(&sea.log)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
        said.trim().to_string()
    };
    ask();
    assert_eq!(check(FIRST), "4 of 4");
    assert_eq!(check(SECOND), "0 of 4");
    sea.given(&["secret", "rotate", "key"], SECOND);
    ask();
    assert_eq!(check(SECOND), "4 of 8");
    let log = std::fs::read_to_string(&sea.log).unwrap();
    assert!(
        !log.contains(FIRST) && !log.contains("motu_placeholder"),
        "{log}"
    );
}
