//! Any bytes are a question, an answer, or neither; and every answer to a question can be read.

use motu_egress::dns::{self, Code, Question};
use std::net::{IpAddr, Ipv4Addr};

pub fn egress_dns(data: &[u8]) {
    let _ = dns::answer(data, 0, "a.example", dns::Kind::A);
    let _ = dns::answer(data, 0, "a.example", dns::Kind::Aaaa);
    if let Ok(question) = Question::read(data) {
        let reply = question.reply(Code::Fine, &[IpAddr::V4(Ipv4Addr::LOCALHOST); 20], 1);
        assert!(reply.len() <= 512);
        if let Some(name) = &question.name {
            let _ = dns::answer(&reply, question.id, name, question.kind);
        }
    }
}
