//! DNS over TCP to the gateway's own resolver.

use super::{End, Flow};

impl Flow {
    /// The next query, one at a time.
    pub(in crate::gateway) fn question(&mut self) -> Option<Vec<u8>> {
        let (End::Names { waiting, .. }, Some(link)) = (&mut self.end, &mut self.link) else {
            return None;
        };
        let socket = link.socket();
        if *waiting || socket.recv_queue() < 2 {
            return None;
        }
        let mut length = [0; 2];
        if socket.peek_slice(&mut length) != Ok(2) {
            return None;
        }
        let length = usize::from(u16::from_be_bytes(length));
        if length > crate::dns::MOST {
            socket.abort();
            return None;
        }
        if socket.recv_queue() < 2 + length {
            return None;
        }
        let mut message = vec![0; 2 + length];
        socket.recv_slice(&mut message).ok()?;
        *waiting = true;
        Some(message.split_off(2))
    }

    /// Queues the response.
    pub(in crate::gateway) fn answer(&mut self, message: &[u8]) {
        if let End::Names { waiting, out } = &mut self.end {
            *waiting = false;
            out.extend((message.len() as u16).to_be_bytes());
            out.extend_from_slice(message);
        }
    }
}
