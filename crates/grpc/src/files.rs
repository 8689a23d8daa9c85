//! Files: whole, streamed, and directories.

use crate::agent::Agent;
use crate::ask;
use crate::service::Outgoing;
use crate::status::broken;
use crate::wire::{
    FileEntry, ListDirRequest, ListDirResponse, MakeDirRequest, MakeDirResponse, ReadFileRequest,
    ReadFileResponse, ReadFileStreamRequest, ReadFileStreamResponse, RemovePathRequest,
    RemovePathResponse, WriteFileRequest, WriteFileResponse, WriteFileStreamMeta,
    WriteFileStreamRequest, WriteFileStreamResponse, write_file_stream_request::Content,
};
use bytes::BytesMut;
use futures_util::StreamExt;
use futures_util::stream::{once, unfold};
use motu_core::files::{
    ByteStream, FileEntry as Entry, FileType, ListFiles, ListOptions, MakeDirectory, ReadFile,
    ReadRange, RemoveFile, WriteFile, WriteOptions, decode_base64,
};
use motu_core::limits;
use motu_core::{Error, Result, Service};
use tonic::Streaming;

/// Bytes of a message besides the content of a file.
const ENVELOPE: u64 = 1024;

impl Agent {
    pub async fn write_whole_file(self, message: WriteFileRequest) -> Result<WriteFileResponse> {
        let id = ask::sandbox(&message.sandbox_id)?;
        let ask = WriteFile::new(ask::path(message.path)?, WriteOptions::default());
        let content = once(async move { Ok(message.content) }).boxed();
        self.write_file(&id, ask, content).await?;
        Ok(WriteFileResponse {})
    }

    pub async fn read_whole_file(self, message: ReadFileRequest) -> Result<ReadFileResponse> {
        let id = ask::sandbox(&message.sandbox_id)?;
        let ask = ReadFile::new(ask::path(message.path)?, ReadRange::default());
        let (entry, mut pieces) = self.read_file(&id, ask).await?;
        let most = limits::GRPC_MESSAGE_BYTES.max - ENVELOPE;
        if entry.size_bytes > most {
            return Err(too_long(most));
        }
        let mut content = BytesMut::with_capacity(entry.size_bytes as usize);
        while let Some(piece) = pieces.next().await {
            content.extend_from_slice(&piece?);
            // Files in /proc are longer than their reported size, and others grow.
            if content.len() as u64 > most {
                return Err(too_long(most));
            }
        }
        Ok(ReadFileResponse {
            content: content.freeze(),
        })
    }

    pub async fn write_file_stream(
        self,
        mut messages: Streaming<WriteFileStreamRequest>,
    ) -> Result<WriteFileStreamResponse> {
        let first = messages.message().await;
        let first = first.map_err(|status| broken(&status))?;
        let Some(Content::Meta(meta)) = first.and_then(|first| first.content) else {
            return Err(Error::invalid("the first message does not hold `meta`")
                .hint("say sandbox_id and path first, then send chunks"));
        };
        let WriteFileStreamMeta { sandbox_id, path } = meta;
        let id = ask::sandbox(&sandbox_id)?;
        let ask = WriteFile::new(ask::path(path)?, WriteOptions::default());
        self.write_file(&id, ask, chunks(messages)).await?;
        Ok(WriteFileStreamResponse {})
    }

    pub async fn read_file_stream(
        self,
        message: ReadFileStreamRequest,
    ) -> Result<Outgoing<ReadFileStreamResponse>> {
        let id = ask::sandbox(&message.sandbox_id)?;
        let ask = ReadFile::new(ask::path(message.path)?, ReadRange::default());
        let (_, pieces) = self.read_file(&id, ask).await?;
        let messages = pieces.map(|piece| piece.map(|chunk| ReadFileStreamResponse { chunk }));
        Ok(messages.boxed())
    }

    pub async fn list_dir(self, message: ListDirRequest) -> Result<ListDirResponse> {
        let id = ask::sandbox(&message.sandbox_id)?;
        let path = ask::path(message.path)?;
        let depth = (message.depth > 0).then_some(message.depth);
        let mut entries = Vec::new();
        let mut after = None;
        loop {
            let options = ListOptions {
                depth,
                after,
                limit: Some(limits::LIST_ENTRIES.max),
            };
            let page = self.list_files(&id, ListFiles::new(path.clone(), options));
            let page = page.await?;
            entries.extend(page.entries.into_iter().map(entry));
            if entries.len() as u64 > limits::GRPC_ENTRIES.max {
                return Err(Error::limit(format!(
                    "there are more than {} entries ({})",
                    limits::GRPC_ENTRIES.max,
                    limits::GRPC_ENTRIES.name
                ))
                .hint("list directories below it one by one, or with a smaller depth"));
            }
            match page.next {
                None => return Ok(ListDirResponse { entries }),
                Some(next) => after = Some(decode_base64(&next)?),
            }
        }
    }

    pub async fn make_dir(self, message: MakeDirRequest) -> Result<MakeDirResponse> {
        let id = ask::sandbox(&message.sandbox_id)?;
        let path = ask::path(message.path)?;
        let made = self
            .mkdir(
                &id,
                MakeDirectory {
                    path,
                    mode: None,
                    user: None,
                },
            )
            .await?;
        Ok(MakeDirResponse {
            entry: Some(entry(made)),
        })
    }

    pub async fn remove_path(self, message: RemovePathRequest) -> Result<RemovePathResponse> {
        let id = ask::sandbox(&message.sandbox_id)?;
        let ask = RemoveFile {
            path: ask::path(message.path)?,
            recursive: true,
            user: None,
        };
        self.remove_file(&id, ask).await?;
        Ok(RemovePathResponse {})
    }
}

fn too_long(most: u64) -> Error {
    Error::limit(format!(
        "the file is longer than {most} bytes ({})",
        limits::GRPC_MESSAGE_BYTES.name
    ))
    .hint("ReadFileStream reads files of any length")
}

/// The content after the first message. A stream that breaks off ends with an error, so that a
/// partial file is not taken for a complete one.
fn chunks(messages: Streaming<WriteFileStreamRequest>) -> ByteStream {
    unfold(Some(messages), |messages| async move {
        let mut messages = messages?;
        let content = match messages.message().await {
            Ok(None) => return None,
            Ok(Some(message)) => message.content,
            Err(status) => return Some((Err(broken(&status)), None)),
        };
        match content {
            Some(Content::Chunk(bytes)) => Some((Ok(bytes), Some(messages))),
            Some(Content::Meta(_)) | None => {
                let error = Error::invalid("a message after the first does not hold a chunk")
                    .hint("one call writes one file");
                Some((Err(error), None))
            }
        }
    })
    .boxed()
}

fn entry(entry: Entry) -> FileEntry {
    let kind = match entry.kind {
        FileType::File => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::Other => "other",
    };
    FileEntry {
        name: entry.name,
        path: entry.path,
        r#type: kind.to_string(),
        size: i64::try_from(entry.size_bytes).unwrap_or(i64::MAX),
        mode: entry.mode,
        permissions: entry.permissions,
        owner: entry.owner,
        group: entry.group,
        modified_at: entry.modified_at.as_second(),
        symlink_target: entry.link_target,
    }
}
