//! The space that must stay free while environments are made.

use super::Environments;
use motu_core::{Error, Result};
use std::time::Duration;

/// Between two looks at the space that is left: at most some hundred megabytes are written meanwhile.
const BETWEEN: Duration = Duration::from_millis(250);

impl Environments {
    /// Does something that writes to the disk. It is given up once less is free than must stay.
    pub(super) async fn while_space<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.sandboxes.gate().check_disk()?;
        tokio::select! {
            biased;
            done = work => done,
            error = self.full() => Err(error),
        }
    }

    /// Why there is too little space, once there is.
    async fn full(&self) -> Error {
        loop {
            tokio::time::sleep(BETWEEN).await;
            if let Err(error) = self.sandboxes.gate().check_disk() {
                return error;
            }
        }
    }
}
