//! The state of a machine's devices on its way into a QEMU that waits for it: always by a pipe.
//!
//! QEMU reads the state from a descriptor. Versions from 9.1 on warn when that is a file, in
//! memory or on a disk, and 11.0 refuses it; all of them take a pipe.

use crate::blocking::blocking;
use crate::error::QemuError;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use std::fs::File;
use std::io::{self, Read};

/// Room for the state of most machines at once, so that its writer waits for nobody.
const PIPE_BYTES: usize = 1 << 20;

/// The end QEMU reads from, and the one the state is written to.
pub(crate) fn pipe() -> Result<(File, File), QemuError> {
    let (reading, writing) =
        pipe_with(PipeFlags::CLOEXEC).map_err(QemuError::errno("cannot make a pipe"))?;
    // A host whose users have many pipes gives less room; the writer then waits for QEMU.
    let _ = fcntl_setpipe_size(&writing, PIPE_BYTES);
    Ok((File::from(reading), File::from(writing)))
}

/// Writes the whole state and closes the pipe: its end is the end of the state.
pub(crate) async fn hand_over(
    mut state: impl Read + Send + 'static,
    mut to: File,
) -> Result<(), QemuError> {
    blocking(move || {
        io::copy(&mut state, &mut to)
            .map(drop)
            .map_err(QemuError::io("cannot hand a machine its state"))
    })
    .await
}

/// Waits for a machine while it is handed its state. Of a QEMU that ends in the middle of it,
/// whoever watches the process knows more than the pipe does.
pub(crate) async fn fed<T>(
    machine: impl Future<Output = Result<T, QemuError>>,
    handing: impl Future<Output = Result<(), QemuError>>,
) -> Result<T, QemuError> {
    tokio::pin!(machine);
    tokio::select! {
        made = &mut machine => made,
        handed = handing => match handed {
            Err(QemuError::Io { error, .. }) if error.kind() == io::ErrorKind::BrokenPipe => {
                machine.await
            }
            Err(error) => Err(error),
            Ok(()) => machine.await,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileTypeExt;

    #[tokio::test]
    async fn the_state_comes_through_a_pipe_whole() {
        let (mut reading, writing) = pipe().unwrap();
        assert!(reading.metadata().unwrap().file_type().is_fifo());
        let state: Vec<u8> = (0..3 << 20).map(|at: u32| (at % 251) as u8).collect();
        let wanted = state.clone();
        let reader = async move {
            blocking(move || {
                let mut seen = Vec::new();
                reading
                    .read_to_end(&mut seen)
                    .map_err(QemuError::io("reading"))?;
                Ok(seen)
            })
            .await
        };
        let seen = fed(reader, hand_over(io::Cursor::new(state), writing)).await;
        assert!(seen.unwrap() == wanted);
    }

    #[tokio::test]
    async fn a_reader_that_ends_early_is_judged_by_whoever_watches_it() {
        let (reading, writing) = pipe().unwrap();
        drop(reading);
        let watching = async {
            tokio::task::yield_now().await;
            Err::<(), _>(QemuError::Boot {
                reason: "failed to set MSR".into(),
            })
        };
        let state = io::Cursor::new(vec![0; 4 << 20]);
        let error = fed(watching, hand_over(state, writing)).await.unwrap_err();
        assert!(error.to_string().contains("failed to set MSR"), "{error}");
    }
}
