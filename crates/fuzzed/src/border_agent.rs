//! Messages that a sandbox sends to the agent: however they are cut, the answers are the same, and
//! nothing is ever signed, because no host has proven a session.

use motu_border::agent::{Agent, KeyError, MESSAGE, PrivateKey, Ring, known_hosts};

const SIGNATURE: u8 = 14;

fn run(data: &[u8], size: usize) -> Vec<Vec<u8>> {
    let (ring, mut agent, mut answers) = (Ring::default(), Agent::default(), Vec::new());
    for mut part in data.chunks(size) {
        while !part.is_empty() {
            let count = agent.wants().min(part.len());
            assert!(count > 0 && agent.wants() <= MESSAGE + 4);
            agent.take(&part[..count]);
            part = &part[count..];
            match agent.answer(&ring) {
                Ok(Some(answer)) => answers.push(answer.bytes),
                Ok(None) => {}
                Err(_) => return answers,
            }
        }
    }
    answers
}

pub fn border_agent(data: &[u8]) {
    let whole = run(data, data.len().max(1));
    assert_eq!(run(data, 1), whole);
    assert!(whole.iter().all(|answer| answer.get(4) != Some(&SIGNATURE)));
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = known_hosts(text, &["a.example".to_owned()]);
        let _: Result<PrivateKey, KeyError> = PrivateKey::read(text);
    }
}
