//! The only kind of data that is signed: a client's login request over one session.

use super::why::Why;
use super::wire::Reader;

const REQUEST: u8 = 50;

/// A session that a host has proven to be its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Session {
    /// The host's public key blob.
    pub(super) host_key: Vec<u8>,
    pub(super) id: Vec<u8>,
}

/// The algorithm to sign with, if the data is a login request over this session with this key.
pub(super) fn algorithm<'a>(
    data: &'a [u8],
    session: &Session,
    key: &[u8],
) -> Result<&'a [u8], Why> {
    let (login, id) = read(data).ok_or(Why::NotALogin)?;
    if id != session.id || login.host_key.is_some_and(|key| key != session.host_key) {
        return Err(Why::OtherSession);
    }
    if login.key != key {
        return Err(Why::UnknownKey);
    }
    Ok(login.algorithm)
}

struct Login<'a> {
    algorithm: &'a [u8],
    key: &'a [u8],
    host_key: Option<&'a [u8]>,
}

fn read(data: &[u8]) -> Option<(Login<'_>, &[u8])> {
    let mut reader = Reader::new(data);
    let id = reader.string()?;
    (reader.byte()? == REQUEST).then_some(())?;
    let (_user, service, method) = (reader.string()?, reader.string()?, reader.string()?);
    (service == b"ssh-connection" && reader.byte()? == 1).then_some(())?;
    let (algorithm, key) = (reader.string()?, reader.string()?);
    let host_key = match method {
        b"publickey" => None,
        b"publickey-hostbound-v00@openssh.com" => Some(reader.string()?),
        _ => return None,
    };
    reader.is_done().then_some(())?;
    let login = Login {
        algorithm,
        key,
        host_key,
    };
    Some((login, id))
}
