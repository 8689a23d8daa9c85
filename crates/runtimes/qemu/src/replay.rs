//! QEMU's side of recorded conversations, for tests of what talks to it.
//!
//! Each connection to the socket gets the next conversation. A command that is not the next one of its conversation fails
//! the test that waits for the end of the replay.

#[path = "../tests/conversation/mod.rs"]
#[expect(dead_code, reason = "others write conversations")]
mod conversation;

use crate::place::{Place, QMP};
use crate::qmp::MAX_LINE;
pub(crate) use conversation::{Conversation, Line};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

/// What a recording of this name holds.
macro_rules! recorded {
    ($name:literal) => {
        crate::replay::Conversation::parse(include_str!(concat!(
            "../tests/conversations/",
            $name,
            ".qmp"
        )))
    };
}
pub(crate) use recorded;

/// A machine's directory in which somebody answers as QEMU did.
pub(crate) struct Replay {
    pub(crate) place: Place,
    _dir: tempfile::TempDir,
    playing: JoinHandle<()>,
}

impl Replay {
    pub(crate) fn of(conversations: Vec<Conversation>) -> Replay {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::open(dir.path()).unwrap();
        let listener = UnixListener::bind(place.socket(QMP)).unwrap();
        let playing = tokio::spawn(async move {
            for conversation in conversations {
                let (stream, _) = listener.accept().await.unwrap();
                play(stream, &conversation).await;
            }
        });
        Replay {
            place,
            _dir: dir,
            playing,
        }
    }

    /// Waits until everything was said, as it was recorded.
    pub(crate) async fn ended(self) {
        self.playing.await.unwrap();
    }
}

async fn play(stream: UnixStream, conversation: &Conversation) {
    let (read, mut write) = stream.into_split();
    let mut asked = BufReader::new(read).lines();
    for line in &conversation.0 {
        match line {
            Line::Remark(_) => {}
            Line::Asked(wanted) => {
                let asked = asked.next_line().await.unwrap();
                let asked = asked.unwrap_or_else(|| panic!("{wanted} was not asked"));
                let asked: serde_json::Value = serde_json::from_str(&asked).unwrap();
                assert_eq!(asked, *wanted);
            }
            Line::Said(said) => write
                .write_all(format!("{said}\n").as_bytes())
                .await
                .unwrap(),
            // Whoever reads may have had enough.
            Line::Long => drop(write.write_all(&vec![b' '; MAX_LINE as usize + 1]).await),
            Line::HangsUp | Line::Gone => return,
        }
    }
    drop(write);
    let more = asked.next_line().await.unwrap();
    assert_eq!(more, None, "more was asked than what is recorded");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accel::Accelerator;
    use crate::record::Shape;
    use crate::template;
    use crate::throttle::Throttle;
    use motu_core::runtime::{Ask, MachineLimits};

    #[tokio::test]
    async fn a_machine_is_saved_as_it_was_recorded() {
        let replay = Replay::of(vec![recorded!("save")]);
        template::stop_and_save(&replay.place).await.unwrap();
        replay.ended().await;
    }

    #[tokio::test]
    async fn a_state_that_qemu_may_not_write_is_refused_in_its_words() {
        let replay = Replay::of(vec![recorded!("save-refused")]);
        let error = template::stop_and_save(&replay.place).await.unwrap_err();
        let said = error.to_string();
        assert!(said.contains("refused xen-save-devices-state"), "{said}");
        assert!(said.contains("Permission denied"), "{said}");
        replay.ended().await;
    }

    #[tokio::test]
    async fn disks_are_limited_as_it_was_recorded() {
        let ask = |value| Ask {
            value,
            explicit: true,
        };
        let limits = MachineLimits {
            vcpu_count: ask(1),
            mem_mib: ask(128),
            disk_mib: ask(16),
            pids_max: Ask::NONE,
            nofile: Ask::NONE,
            io_mbps: ask(5),
            iops: ask(100),
        };
        let shape = Shape {
            accel: Accelerator::Tcg,
            mem_mib: 128,
            vcpu_count: 1,
            disk_mib: 16,
            root_bytes: 1 << 24,
            kept: false,
            network: false,
        };
        let replay = Replay::of(vec![recorded!("throttle")]);
        let throttle = Throttle::of(&limits);
        throttle.apply(&replay.place, &shape).await.unwrap();
        replay.ended().await;
    }
}
