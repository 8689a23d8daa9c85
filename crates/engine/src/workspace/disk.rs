//! The disks of a stopped workspace, read without a machine.

use crate::engine::Engine;
use motu_core::workspace::{DiskExported, FileText, PathList, WorkspaceId};
use motu_core::{Error, Result};

impl Engine {
    pub(super) async fn export_disk(
        &self,
        _id: &WorkspaceId,
        _output: &str,
    ) -> Result<DiskExported> {
        Err(Error::unsupported("not yet"))
    }

    pub(super) async fn list_disk(
        &self,
        _id: &WorkspaceId,
        _path: &str,
        _recursive: bool,
    ) -> Result<PathList> {
        Err(Error::unsupported("not yet"))
    }

    pub(super) async fn read_disk(
        &self,
        _id: &WorkspaceId,
        _path: &str,
        _max_bytes: Option<u64>,
    ) -> Result<FileText> {
        Err(Error::unsupported("not yet"))
    }
}
