//! DNS messages: queries of a sandbox, ours to a resolver, and the responses to both.
//!
//! Pure. Input is hostile and parsed within bounds; output is always written here, so that nothing
//! from a sandbox goes further than an allowed name.

use simple_dns::rdata::RData;
use simple_dns::{OPCODE, Packet, PacketFlag, QCLASS, QTYPE, RCODE, TYPE};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest message that is read.
pub const MOST: usize = 4096;
/// The EDNS datagram size that we announce to a resolver.
const DATAGRAM: u16 = 1232;
/// The datagram size that every client accepts.
const SMALL: usize = 512;
/// CNAME records followed.
const ALIASES: usize = 16;

/// A query of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    pub id: u16,
    /// The name as text; `None` if a label has bytes that text cannot show unambiguously.
    pub name: Option<String>,
    pub kind: Kind,
    /// The question section, repeated in the response.
    section: Vec<u8>,
}

/// Record types that are distinguished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    A,
    Aaaa,
    /// Types that ordinary clients query beside the address; answered with no records.
    Service,
    Other,
}

impl Kind {
    /// Its number, for the kinds that we ask for ourselves.
    fn number(self) -> u8 {
        match self {
            Kind::Aaaa => 28,
            _ => 1,
        }
    }
}

/// Response codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    Fine = 0,
    Malformed = 1,
    Failed = 2,
    NoSuchName = 3,
    Refused = 5,
}

/// A message that is no query. With an id, a response is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAQuestion(pub Option<u16>);

impl Question {
    pub fn read(bytes: &[u8]) -> Result<Self, NotAQuestion> {
        let id = bytes
            .get(..12)
            .map(|head| u16::from_be_bytes([head[0], head[1]]));
        let refused = NotAQuestion(id.filter(|_| bytes[2] & 0x80 == 0));
        if bytes.len() > MOST {
            return Err(refused);
        }
        let packet = Packet::parse(bytes).map_err(|_| refused)?;
        let [question] = packet.questions.as_slice() else {
            return Err(refused);
        };
        if packet.has_flags(PacketFlag::RESPONSE) || packet.opcode() != OPCODE::StandardQuery {
            return Err(refused);
        }
        let mut section = Vec::new();
        let labels = question.qname.as_bytes();
        let labels: Vec<&[u8]> = labels.filter(|label| !label.is_empty()).collect();
        for label in &labels {
            section.push(u8::try_from(label.len()).map_err(|_| refused)?);
            section.extend_from_slice(label);
        }
        section.push(0);
        section.extend(u16::from(question.qtype).to_be_bytes());
        section.extend(u16::from(question.qclass).to_be_bytes());
        let kind = match (question.qclass, question.qtype) {
            (QCLASS::CLASS(simple_dns::CLASS::IN), QTYPE::TYPE(TYPE::A)) => Kind::A,
            (QCLASS::CLASS(simple_dns::CLASS::IN), QTYPE::TYPE(TYPE::AAAA)) => Kind::Aaaa,
            (QCLASS::CLASS(simple_dns::CLASS::IN), kind) if matches!(u16::from(kind), 64 | 65) => {
                Kind::Service
            }
            _ => Kind::Other,
        };
        Ok(Self {
            id: packet.id(),
            name: text(&labels),
            kind,
            section,
        })
    }

    /// The response: a code, and as many addresses as every client accepts.
    pub fn reply(&self, code: Code, addresses: &[IpAddr], seconds: u32) -> Vec<u8> {
        // The largest record: 12 bytes plus a 16-byte address.
        let room = SMALL.saturating_sub(12 + self.section.len()) / 28;
        let addresses = &addresses[..addresses.len().min(room)];
        let mut out = head(self.id, 0x8180 | code as u16, 1, addresses.len() as u16);
        out.extend_from_slice(&self.section);
        for address in addresses {
            let (kind, bytes) = match address {
                IpAddr::V4(address) => (Kind::A, address.octets().to_vec()),
                IpAddr::V6(address) => (Kind::Aaaa, address.octets().to_vec()),
            };
            // A pointer to the question's name, the type, class IN.
            out.extend([0xc0, 12, 0, kind.number(), 0, 1]);
            out.extend(seconds.to_be_bytes());
            out.extend([0, bytes.len() as u8]);
            out.extend(bytes);
        }
        out
    }
}

/// The response to a query that could not be parsed.
pub fn refusal(id: u16) -> Vec<u8> {
    head(id, 0x8180 | Code::Malformed as u16, 0, 0)
}

fn head(id: u16, flags: u16, questions: u16, answers: u16) -> Vec<u8> {
    let words = [id, flags, questions, answers, 0, 0];
    words.into_iter().flat_map(u16::to_be_bytes).collect()
}

/// A name as text, if every label consists of host-name characters.
fn text(labels: &[&[u8]]) -> Option<String> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let labels: Option<Vec<&str>> = labels
        .iter()
        .map(|label| {
            str::from_utf8(label)
                .ok()
                .filter(|text| text.as_bytes().iter().all(plain))
        })
        .collect();
    Some(labels?.join("."))
}

/// A query to a resolver for the A or AAAA records of a normalized name.
pub fn ask(id: u16, name: &str, kind: Kind) -> Vec<u8> {
    let mut out = head(id, 0x0100, 1, 0);
    out[11] = 1;
    for label in name.split('.') {
        out.push(label.len() as u8);
        out.extend_from_slice(label.as_bytes());
    }
    out.extend([0, 0, kind.number(), 0, 1]);
    // EDNS: our datagram size.
    out.extend([0, 0, 41]);
    out.extend(DATAGRAM.to_be_bytes());
    out.extend([0; 6]);
    out
}

/// A resolver's response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub code: Code,
    pub addresses: Vec<IpAddr>,
    /// For how long, in seconds.
    pub ttl: u32,
}

/// Parses the response to [`ask`]; `None` if it answers another query.
pub fn answer(bytes: &[u8], id: u16, name: &str, kind: Kind) -> Option<Answer> {
    let packet = Packet::parse(bytes.get(..bytes.len().min(MOST))?).ok()?;
    let [question] = packet.questions.as_slice() else {
        return None;
    };
    let same = |given: &simple_dns::Name<'_>, want: &str| {
        let labels = given.as_bytes();
        let labels: Vec<&[u8]> = labels.filter(|label| !label.is_empty()).collect();
        text(&labels).is_some_and(|text| text.eq_ignore_ascii_case(want))
    };
    if packet.id() != id
        || !packet.has_flags(PacketFlag::RESPONSE)
        || u16::from(question.qtype) != u16::from(kind.number())
        || !same(&question.qname, name)
    {
        return None;
    }
    let code = match packet.rcode() {
        RCODE::NoError => Code::Fine,
        RCODE::NameError => Code::NoSuchName,
        RCODE::Refused => Code::Refused,
        _ => Code::Failed,
    };
    let mut owner = name.to_owned();
    let mut ttl = u32::MAX;
    for _ in 0..ALIASES {
        let alias = packet
            .answers
            .iter()
            .find_map(|record| match &record.rdata {
                RData::CNAME(to) if same(&record.name, &owner) => Some((record.ttl, to)),
                _ => None,
            });
        let Some((seconds, to)) = alias else { break };
        let labels = to.0.as_bytes();
        let labels: Vec<&[u8]> = labels.filter(|label| !label.is_empty()).collect();
        owner = text(&labels)?;
        ttl = ttl.min(seconds);
    }
    let mut addresses = Vec::new();
    for record in &packet.answers {
        let address = match (&record.rdata, kind) {
            (RData::A(found), Kind::A) => Ipv4Addr::from_bits(found.address).into(),
            (RData::AAAA(found), Kind::Aaaa) => Ipv6Addr::from_bits(found.address).into(),
            _ => continue,
        };
        if same(&record.name, &owner) {
            ttl = ttl.min(record.ttl);
            addresses.push(address);
        }
    }
    Some(Answer {
        code,
        addresses,
        ttl,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn asked(name: &str, kind: u16) -> Vec<u8> {
        let mut bytes = ask(7, name, Kind::A);
        let end = 12 + name.len() + 2;
        bytes[end..end + 2].copy_from_slice(&kind.to_be_bytes());
        bytes
    }

    #[test]
    fn a_question_is_read_and_answered() {
        let question = Question::read(&asked("a.Example", 1)).unwrap();
        assert_eq!((question.id, question.kind), (7, Kind::A));
        assert_eq!(question.name.as_deref(), Some("a.Example"));
        let reply = question.reply(Code::Fine, &[Ipv4Addr::new(1, 2, 3, 4).into()], 60);
        let told = answer(&reply, 7, "a.example", Kind::A).unwrap();
        assert_eq!(told.addresses, [Ipv4Addr::new(1, 2, 3, 4)]);
        assert_eq!((told.ttl, told.code), (60, Code::Fine));
        // Another id, another name, a question instead of an answer.
        assert_eq!(answer(&reply, 8, "a.example", Kind::A), None);
        assert_eq!(answer(&reply, 7, "b.example", Kind::A), None);
        assert_eq!(answer(&reply, 7, "a.example", Kind::Aaaa), None);
        assert_eq!(
            answer(&asked("a.example", 1), 7, "a.example", Kind::A),
            None
        );
        assert_eq!(
            Question::read(&asked("a.example", 28)).unwrap().kind,
            Kind::Aaaa
        );
        assert_eq!(
            Question::read(&asked("a.example", 65)).unwrap().kind,
            Kind::Service
        );
        assert_eq!(
            Question::read(&asked("a.example", 16)).unwrap().kind,
            Kind::Other
        );
    }

    #[test]
    fn addresses_of_ipv6_are_asked_for_and_told() {
        let question = Question::read(&ask(7, "a.example", Kind::Aaaa)).unwrap();
        assert_eq!(question.kind, Kind::Aaaa);
        let address: IpAddr = "2600::5".parse().unwrap();
        let reply = question.reply(Code::Fine, &[address], 9);
        let told = answer(&reply, 7, "a.example", Kind::Aaaa).unwrap();
        assert_eq!((told.addresses, told.ttl), (vec![address], 9));
    }

    #[test]
    fn aliases_lead_to_addresses_and_strangers_do_not() {
        let question = Question::read(&asked("a.example", 1)).unwrap();
        let mut bytes = question.reply(Code::Fine, &[], 0);
        bytes[7] = 3;
        // a.example CNAME b.example; b.example A 1.1.1.1; c.example A 2.2.2.2.
        let b = b"\x01b\x07example\0";
        bytes.extend([0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 9, 0, b.len() as u8]);
        bytes.extend(b);
        for (name, last) in [(&b[..], 1), (&b"\x01c\x07example\0"[..], 2)] {
            bytes.extend(name);
            bytes.extend([0, 1, 0, 1, 0, 0, 0, 99, 0, 4, last, last, last, last]);
        }
        let told = answer(&bytes, 7, "a.example", Kind::A).unwrap();
        assert_eq!(told.addresses, [Ipv4Addr::new(1, 1, 1, 1)]);
        assert_eq!(told.ttl, 9);
    }

    #[test]
    fn odd_labels_are_not_text_and_answers_always_fit() {
        for label in [&b"a.b"[..], b"a b", b"\xff", b"a\0"] {
            let mut bytes = head(7, 0x0100, 1, 0);
            bytes.push(label.len() as u8);
            bytes.extend(label);
            bytes.extend([0, 0, 1, 0, 1]);
            assert_eq!(Question::read(&bytes).unwrap().name, None);
        }
        let long = [&"a".repeat(63), "b", &"c".repeat(63), &"d".repeat(60)].join(".");
        let question = Question::read(&asked(&long, 1)).unwrap();
        let many = [IpAddr::V6(Ipv6Addr::LOCALHOST); 100];
        assert!(question.reply(Code::Fine, &many, 1).len() <= SMALL);
        assert_eq!(Question::read(&[0; 5]), Err(NotAQuestion(None)));
        assert_eq!(Question::read(&[0; 12]), Err(NotAQuestion(Some(0))));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300), flip in prop::collection::vec((0usize..60, any::<u8>()), 0..6)) {
            let _ = Question::read(&bytes);
            let _ = answer(&bytes, 7, "a.example", Kind::A);
            let _ = answer(&bytes, 7, "a.example", Kind::Aaaa);
            let mut near = asked("a.example", 1);
            for (at, byte) in flip {
                if let Some(place) = near.get_mut(at) {
                    *place = byte;
                }
            }
            if let Ok(question) = Question::read(&near) {
                let _ = question.reply(Code::Refused, &[], 0);
            }
        }
    }
}
