use super::*;
use proptest::prelude::*;
use std::sync::LazyLock;

/// A key made by `ssh-keygen`.
pub(super) struct Made {
    pub(super) private: String,
    pub(super) public: String,
    /// The output of `ssh-keygen -l`.
    pub(super) listed: String,
}

pub(super) fn generate(kind: &str, bits: &str, phrase: &str) -> Made {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("key");
    let run = |args: &[&str]| {
        let mut command = motu_needs::command("ssh-keygen");
        let done = command.args(args).arg("-f").arg(&file).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).unwrap()
    };
    run(&[
        "-q",
        "-t",
        kind,
        "-b",
        bits,
        "-N",
        phrase,
        "-C",
        "a comment",
    ]);
    let listed = run(&["-l"]);
    let read = |path| std::fs::read_to_string(path).unwrap();
    Made {
        private: read(file.clone()),
        public: read(file.with_extension("pub")),
        listed,
    }
}

/// A host with its key, and keys that are bound to it.
struct Scene {
    host: PrivateKey,
    other: PrivateKey,
    keys: Vec<Key>,
}

static SCENE: LazyLock<Scene> = LazyLock::new(|| {
    let host = generate("ed25519", "256", "");
    let other = generate("ed25519", "256", "");
    let host_key = host.public.split(' ').nth(1).unwrap().to_string();
    let key = |name: &str, made: Made, keys: Vec<String>| Key {
        name: name.to_string(),
        key: Value::new(made.private),
        hosts: vec![KnownHost {
            name: "git.example".to_string(),
            ports: vec![22],
            keys,
        }],
    };
    Scene {
        host: PrivateKey::read(&host.private).unwrap(),
        other: PrivateKey::read(&other.private).unwrap(),
        keys: vec![
            key(
                "deploy",
                generate("ed25519", "256", ""),
                vec![host_key.clone()],
            ),
            key("rsa", generate("rsa", "2048", ""), vec![host_key]),
            key("elsewhere", generate("ed25519", "256", ""), Vec::new()),
        ],
    }
});

fn ring() -> Ring {
    Ring::new(&SCENE.keys).unwrap()
}

fn blob(ring: &Ring, at: usize) -> Vec<u8> {
    ring.0[at].key.blob().to_vec()
}

const ID: [u8; 32] = [7; 32];

fn bind(host: &PrivateKey, id: &[u8], forwarded: u8) -> Vec<u8> {
    let signature = host.sign(b"ssh-ed25519", id).unwrap();
    let mut message = vec![EXTENSION];
    for field in [SESSION_BIND, host.blob(), id, &signature] {
        put_string(&mut message, field);
    }
    message.push(forwarded);
    message
}

fn login(id: &[u8], algorithm: &str, key: &[u8], host_key: Option<&[u8]>) -> Vec<u8> {
    let mut data = Vec::new();
    put_string(&mut data, id);
    data.push(50);
    let method: &[u8] = match host_key {
        Some(_) => b"publickey-hostbound-v00@openssh.com",
        None => b"publickey",
    };
    for field in [b"git", &b"ssh-connection"[..], method] {
        put_string(&mut data, field);
    }
    data.push(1);
    put_string(&mut data, algorithm.as_bytes());
    put_string(&mut data, key);
    if let Some(host_key) = host_key {
        put_string(&mut data, host_key);
    }
    data
}

fn sign(key: &[u8], data: &[u8], flags: u32) -> Vec<u8> {
    let mut message = vec![SIGN_REQUEST];
    put_string(&mut message, key);
    put_string(&mut message, data);
    message.extend(flags.to_be_bytes());
    message
}

fn send(agent: &mut Agent, ring: &Ring, message: &[u8]) -> (u8, Option<Said>) {
    let mut bytes = Vec::new();
    put_string(&mut bytes, message);
    let mut rest = &bytes[..];
    loop {
        let count = agent.wants().min(rest.len());
        agent.take(&rest[..count]);
        rest = &rest[count..];
        if let Some(answer) = agent.answer(ring).unwrap() {
            assert!(rest.is_empty());
            return (answer.bytes[4], answer.said);
        }
    }
}

fn why(agent: &mut Agent, ring: &Ring, message: &[u8]) -> Why {
    let (code, said) = send(agent, ring, message);
    let said = said.unwrap();
    assert_eq!(code == SIGNATURE, said.is_allowed(), "{said:?}");
    assert!(code == SIGNATURE || code == FAILURE, "{code}");
    said.why
}

fn bound(ring: &Ring) -> Agent {
    let mut agent = Agent::default();
    let (code, said) = send(&mut agent, ring, &bind(&SCENE.host, &ID, 0));
    assert_eq!((code, said), (SUCCESS, None));
    agent
}

#[test]
fn a_login_over_a_proven_session_is_signed_and_the_signature_is_right() {
    let ring = ring();
    let (ed, rsa) = (blob(&ring, 0), blob(&ring, 1));
    let mut agent = bound(&ring);
    let host_key = SCENE.host.blob();
    for (key, algorithm, flags) in [
        (&ed, "ssh-ed25519", 0),
        (&rsa, "rsa-sha2-256", 2),
        (&rsa, "rsa-sha2-512", 4),
    ] {
        for host_key in [None, Some(host_key)] {
            let data = login(&ID, algorithm, key, host_key);
            let mut bytes = Vec::new();
            put_string(&mut bytes, &sign(key, &data, flags));
            while agent.wants() > 0 {
                let at = bytes.len().min(agent.wants());
                agent.take(&bytes.drain(..at).collect::<Vec<u8>>());
            }
            let answer = agent.answer(&ring).unwrap().unwrap();
            let said = answer.said.unwrap();
            assert_eq!(said.why, Why::Signed);
            assert_eq!(said.host.as_deref(), Some("git.example"));
            let mut reader = Reader::new(&answer.bytes[5..]);
            let signature = reader.string().unwrap();
            assert!(HostKey::read(key).unwrap().has_signed(&data, signature));
        }
    }
}

#[test]
fn a_connection_that_is_bound_to_nothing_signs_nothing() {
    let ring = ring();
    let key = blob(&ring, 0);
    let data = login(&ID, "ssh-ed25519", &key, None);
    let mut agent = Agent::default();
    assert_eq!(why(&mut agent, &ring, &sign(&key, &data, 0)), Why::NotBound);
}

#[test]
fn only_a_host_that_the_key_is_bound_to_can_bind() {
    let ring = ring();
    let key = blob(&ring, 0);
    let asked = sign(&key, &login(&ID, "ssh-ed25519", &key, None), 0);
    let mut stolen = bind(&SCENE.host, &ID, 0);
    // The proof of another session.
    let (other, at) = ([8; 32], stolen.windows(32).position(|part| part == ID));
    stolen[at.unwrap()..][..32].copy_from_slice(&other);
    for (message, wanted) in [
        (bind(&SCENE.other, &ID, 0), Why::UnknownHostKey),
        (bind(&SCENE.host, &ID, 1), Why::Forwarded),
        (bind(&SCENE.host, b"short", 0), Why::BadProof),
        (bind(&SCENE.host, &[1; 65], 0), Why::BadProof),
        (stolen, Why::BadProof),
    ] {
        let mut agent = Agent::default();
        assert_eq!(why(&mut agent, &ring, &message), wanted);
        // A later valid proof does not help either.
        assert_eq!(why(&mut agent, &ring, &bind(&SCENE.host, &ID, 0)), wanted);
        assert_eq!(why(&mut agent, &ring, &asked), wanted);
        let mut bytes = Vec::new();
        put_string(&mut bytes, &[REQUEST_IDENTITIES]);
        agent.take(&bytes[..4]);
        agent.take(&bytes[4..]);
        let none = agent.answer(&ring).unwrap().unwrap();
        assert_eq!(none.bytes, [0, 0, 0, 5, IDENTITIES, 0, 0, 0, 0]);
    }
    let mut agent = bound(&ring);
    assert_eq!(
        send(&mut agent, &ring, &bind(&SCENE.host, &ID, 0)).0,
        SUCCESS
    );
    let second = bind(&SCENE.host, &other, 0);
    assert_eq!(why(&mut agent, &ring, &second), Why::BoundTwice);
    assert_eq!(why(&mut agent, &ring, &asked), Why::BoundTwice);
}

#[test]
fn what_is_not_this_login_is_not_signed() {
    let ring = ring();
    let (key, rsa, elsewhere) = (blob(&ring, 0), blob(&ring, 1), blob(&ring, 2));
    let mut agent = bound(&ring);
    let fine = login(&ID, "ssh-ed25519", &key, None);
    let mut longer = fine.clone();
    longer.push(0);
    let other = SCENE.other.blob();
    let cases = [
        (sign(&key, b"", 0), Why::NotALogin),
        (sign(&key, b"SSHSIG\0\0\0\x04file", 0), Why::NotALogin),
        (sign(&key, &fine[..fine.len() - 1], 0), Why::NotALogin),
        (sign(&key, &longer, 0), Why::NotALogin),
        (
            sign(&key, &login(&[8; 32], "ssh-ed25519", &key, None), 0),
            Why::OtherSession,
        ),
        (
            sign(&key, &login(&ID, "ssh-ed25519", &key, Some(other)), 0),
            Why::OtherSession,
        ),
        (
            sign(&key, &login(&ID, "ssh-ed25519", &rsa, None), 0),
            Why::UnknownKey,
        ),
        (
            sign(&key, &login(&ID, "ssh-rsa", &key, None), 0),
            Why::Algorithm,
        ),
        (
            sign(&rsa, &login(&ID, "ssh-rsa", &rsa, None), 0),
            Why::Algorithm,
        ),
        (
            sign(&rsa, &login(&ID, "rsa-sha2-512", &rsa, None), 2),
            Why::Algorithm,
        ),
        (
            sign(&elsewhere, &login(&ID, "ssh-ed25519", &elsewhere, None), 0),
            Why::UnknownHostKey,
        ),
        (
            sign(other, &login(&ID, "ssh-ed25519", other, None), 0),
            Why::UnknownKey,
        ),
        (sign(&key, &fine, 0)[..40].to_vec(), Why::Malformed),
        (vec![EXTENSION, 0, 0, 0, 1, b'x'], Why::Unsupported),
        (vec![17], Why::Unsupported),
        (vec![REQUEST_IDENTITIES, 0], Why::Unsupported),
    ];
    for (number, (message, wanted)) in cases.into_iter().enumerate() {
        assert_eq!(why(&mut agent, &ring, &message), wanted, "case {number}");
    }
    assert_eq!(why(&mut agent, &ring, &sign(&key, &fine, 0)), Why::Signed);
}

#[test]
fn another_ring_counts_for_a_connection_that_is_open() {
    let before = ring();
    let key = blob(&before, 0);
    let mut agent = bound(&before);
    let asked = sign(&key, &login(&ID, "ssh-ed25519", &key, None), 0);
    let after = Ring::new(&SCENE.keys[1..]).unwrap();
    assert_eq!(why(&mut agent, &after, &asked), Why::UnknownKey);
    assert_eq!(why(&mut agent, &before, &asked), Why::Signed);
}

#[test]
fn a_message_without_bounds_ends_the_connection() {
    for length in [0, MESSAGE as u32 + 1, u32::MAX] {
        let mut agent = Agent::default();
        agent.take(&length.to_be_bytes());
        assert_eq!(agent.answer(&ring()), Err(NotAMessage), "{length}");
        assert!(agent.wants() <= MESSAGE);
    }
}

proptest! {
    /// Nothing is signed on a connection without a proven session, memory is bounded, and the
    /// answer does not depend on how the bytes are split.
    #[test]
    fn bytes_of_anybody_are_never_signed(
        bytes in prop::collection::vec(any::<u8>(), 0..600),
        kinds in prop::collection::vec(prop::sample::select(vec![11u8, 13, 27, 1, 17, 255]), 1..8),
        cut in 1usize..64,
    ) {
        let ring = ring();
        let run = |size: usize| {
            let (mut agent, mut answers) = (Agent::default(), Vec::new());
            let share = bytes.len() / kinds.len();
            for (at, kind) in kinds.iter().enumerate() {
                let mut message = vec![*kind];
                message.extend_from_slice(&bytes[at * share..][..share]);
                let mut whole = Vec::new();
                put_string(&mut whole, &message);
                for part in whole.chunks(size) {
                    let mut part = part;
                    while !part.is_empty() {
                        let count = agent.wants().min(part.len());
                        agent.take(&part[..count]);
                        part = &part[count..];
                        if let Some(answer) = agent.answer(&ring).unwrap() {
                            answers.push(answer);
                        }
                    }
                }
            }
            assert!(agent.message.len() <= MESSAGE + 4);
            answers
        };
        let (whole, parts) = (run(usize::MAX), run(cut));
        prop_assert_eq!(&whole, &parts);
        prop_assert_eq!(whole.len(), kinds.len());
        prop_assert!(whole.iter().all(|answer| answer.bytes[4] != SIGNATURE));
    }
}
