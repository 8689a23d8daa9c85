//! `motu cp`: files and trees, into a sandbox and out of it.

mod lent;

use crate::context::Context;
use crate::failure::Reader;
use crate::show::answer;
use crate::waiting::{self, Moved};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use motu_api::Client;
use motu_core::files::{
    ByteStream, FileType, GuestPath, MakeDirectory, StatFile, WriteFile, WriteOptions,
};
use motu_core::workspace::ExportOptions;
use motu_core::{Error, Result, SandboxId, Service, limits};
use motu_workspaces::output::{Replace, unpack_file, unpack_tree};
use motu_workspaces::tree;
use serde::Serialize;
use std::io::{Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tokio::sync::mpsc;

/// Bytes moved at once.
const CHUNK: usize = 256 * 1024;
/// Chunks between the disk and the connection.
const QUEUE: usize = 4;

/// Copy files and directories into a sandbox or out of it
///
/// One side is ID:/path, the other a path here. A directory that is there
/// already receives the copy under its own name, as with cp. Times, attributes of users (user.*),
/// holes and hard links are kept; owners, special permission bits and capabilities are not. Here
/// a copy goes to a new name or an empty directory; --force replaces plain files, and nothing
/// else ever.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu cp script.py sb-3f9k2m7qx0ab:/workspace/
  motu cp ./project sb-3f9k2m7qx0ab:/workspace/project
  motu cp sb-3f9k2m7qx0ab:/workspace/result.json .")]
pub struct Args {
    /// From: a path, or ID:/path
    #[arg(value_name = "SOURCE")]
    source: Side,

    /// To: a path, or ID:/path
    #[arg(value_name = "DESTINATION")]
    destination: Side,

    #[command(flatten)]
    export: crate::commands::given::Export,

    /// Print what was copied as JSON
    #[arg(long)]
    pub json: bool,
}

/// One end of a copy.
#[derive(Clone, Debug)]
enum Side {
    Here(PathBuf),
    There(SandboxId, GuestPath),
}

impl std::str::FromStr for Side {
    type Err = Error;

    /// `ID:/path` is there; everything else, `./a:/b` included, is here.
    fn from_str(text: &str) -> Result<Side> {
        match text.split_once(':') {
            Some((id, path)) if path.starts_with('/') && !id.contains('/') => Ok(Side::There(
                SandboxId::parse(id)?,
                GuestPath::new(path.as_bytes().to_vec())?,
            )),
            _ => Ok(Side::Here(PathBuf::from(text))),
        }
    }
}

#[derive(Serialize)]
struct Copied {
    destination: String,
    bytes: u64,
}

impl Args {
    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        let client = context.client();
        let moved = Moved::default();
        let reader = Reader::of(self.json);
        let copied = match (self.source, self.destination) {
            (Side::Here(from), Side::There(id, to)) => {
                let work = upload(&client, &from, &id, to, &moved);
                waiting::moving("copying", reader, &moved, work).await?
            }
            (Side::There(id, from), Side::Here(to)) => {
                let work = download(&client, (&id, from), to, self.export.into(), &moved);
                waiting::moving("copying", reader, &moved, work).await?
            }
            _ => {
                return Err(Error::invalid("exactly one side must be in a sandbox")
                    .hint("such as: motu cp file.txt ID:/workspace/"));
            }
        };
        answer(self.json, &copied, |_| String::new());
        Ok(ExitCode::SUCCESS)
    }
}

fn local(what: &str, path: &Path) -> impl Fn(std::io::Error) -> Error {
    let context = format!("{what} {}", path.display());
    move |error| Error::with_file(&context, &error)
}

/// The last part of a path's name.
fn name(path: &[u8]) -> Result<&[u8]> {
    let trimmed = path
        .iter()
        .rposition(|byte| *byte != b'/')
        .map_or(&path[..0], |end| &path[..=end]);
    let begin = trimmed
        .iter()
        .rposition(|byte| *byte == b'/')
        .map_or(0, |at| at + 1);
    match &trimmed[begin..] {
        b"" | b"." | b".." => Err(Error::invalid("the source has no name to copy it under")
            .hint("name the destination in full")),
        name => Ok(name),
    }
}

async fn upload(
    client: &Client,
    from: &Path,
    id: &SandboxId,
    to: GuestPath,
    moved: &Moved,
) -> Result<Copied> {
    let found = std::fs::metadata(from).map_err(local("read", from))?;
    let to = match client
        .stat(
            id,
            StatFile {
                path: to.clone(),
                follow: true,
                user: None,
            },
        )
        .await
    {
        Ok(entry) if entry.kind == FileType::Directory => {
            let full = std::path::absolute(from).map_err(local("read", from))?;
            let mut path = to.as_bytes().to_vec();
            path.push(b'/');
            path.extend_from_slice(name(full.as_os_str().as_bytes())?);
            GuestPath::new(path)?
        }
        Ok(_) => to,
        Err(error) if error.kind == motu_core::ErrorKind::NotFound => {
            // Check whether the sandbox itself is missing.
            client.get_sandbox(id).await?;
            to
        }
        Err(error) => return Err(error),
    };
    let destination = format!("{id}:{}", String::from_utf8_lossy(to.as_bytes()));
    let from = from.to_path_buf();
    if found.is_dir() {
        let path = to.clone();
        client
            .mkdir(
                id,
                MakeDirectory {
                    path,
                    mode: None,
                    user: None,
                },
            )
            .await?;
    } else if !is_replaceable(client, id, &to).await? {
        // Written through a symbolic link, or refused.
        let options = WriteOptions {
            mode: Some(found.permissions().mode() & 0o777),
            ..WriteOptions::default()
        };
        let content = moved.counting(produce(move |sink| read_file(&from, sink)));
        let written = client.write_file(id, WriteFile::new(to, options), content);
        let bytes = written.await?.size_bytes;
        return Ok(Copied { destination, bytes });
    } else if found.is_file()
        && found.len() >= lent::LARGE
        && let Some(bytes) = lent::upload(client, &from, id, &to, moved).await?
    {
        return Ok(Copied { destination, bytes });
    }
    let bytes = send_tree(client, from, id, &to, moved).await?;
    Ok(Copied { destination, bytes })
}

/// Sends a file or a tree to exactly this path of a sandbox. Gives the bytes of its files.
pub async fn send_tree(
    client: &Client,
    from: PathBuf,
    id: &SandboxId,
    to: &GuestPath,
    moved: &Moved,
) -> Result<u64> {
    let (parent, name) = (parent(to)?, name(to.as_bytes())?.to_vec());
    let (sender, packed) = tokio::sync::oneshot::channel();
    let archive = produce(move |sink| {
        let sink = std::io::BufWriter::with_capacity(CHUNK, sink);
        let done = tree::pack(&from, &name, sink).map_err(local("pack", &from))?;
        let _ = sender.send(done);
        Ok(())
    });
    let archive = moved.counting(archive);
    client.write_tree(id, parent.into(), archive).await?;
    let packed = packed.await.unwrap_or_default();
    if packed.skipped > 0 {
        eprintln!(
            "motu: {} devices, pipes or sockets were left out",
            packed.skipped
        );
    }
    Ok(packed.bytes)
}

/// Whether a file can be put at a path as it is: nothing is there, or a plain file.
async fn is_replaceable(client: &Client, id: &SandboxId, to: &GuestPath) -> Result<bool> {
    let stat = StatFile {
        path: to.clone(),
        follow: false,
        user: None,
    };
    match client.stat(id, stat).await {
        Ok(entry) => Ok(entry.kind == FileType::File),
        Err(error) if error.kind == motu_core::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// The directory that a path is in.
fn parent(path: &GuestPath) -> Result<GuestPath> {
    let bytes = path.as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'/').unwrap_or(0);
    let slash = bytes[..end].iter().rposition(|byte| *byte == b'/');
    match slash {
        None | Some(0) => GuestPath::new(b"/".to_vec()),
        Some(at) => GuestPath::new(bytes[..at].to_vec()),
    }
}

/// What blocking code writes, as a stream.
pub fn produce(work: impl FnOnce(&mut Sink) -> Result<()> + Send + 'static) -> ByteStream {
    let (sender, receiver) = mpsc::channel(QUEUE);
    std::thread::spawn(move || {
        let mut sink = Sink(sender.clone());
        if let Err(error) = work(&mut sink) {
            let _ = sender.blocking_send(Err(error));
        }
    });
    stream::unfold(receiver, async |mut receiver| {
        receiver.recv().await.map(|chunk| (chunk, receiver))
    })
    .boxed()
}

pub struct Sink(mpsc::Sender<Result<Bytes>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let sent = self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes)));
        sent.map(|()| bytes.len())
            .map_err(|_| std::io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

pub fn read_file(path: &Path, sink: &mut Sink) -> Result<()> {
    let mut file = std::fs::File::open(path).map_err(local("read", path))?;
    let mut buffer = vec![0; CHUNK];
    loop {
        let length = file.read(&mut buffer).map_err(local("read", path))?;
        if length == 0 {
            return Ok(());
        }
        sink.write_all(&buffer[..length])
            .map_err(local("send", path))?;
    }
}

async fn download(
    client: &Client,
    (id, from): (&SandboxId, GuestPath),
    to: PathBuf,
    export: ExportOptions,
    moved: &Moved,
) -> Result<Copied> {
    let most = limits::EXPORT_BYTES.resolve(export.max_bytes)?;
    let replace = Replace::from(export.force);
    let entry = client
        .stat(
            id,
            StatFile {
                path: from.clone(),
                follow: true,
                user: None,
            },
        )
        .await?;
    let to = match to.is_dir() {
        true => to.join(std::ffi::OsString::from_vec(
            name(from.as_bytes())?.to_vec(),
        )),
        false => to,
    };
    let destination = to.display().to_string();
    let bytes = match entry.kind {
        FileType::Directory => {
            let archive = moved.counting(client.read_tree(id, from.into()).await?);
            let unpacked = receive(archive, move |source| {
                unpack_tree(source, &to, replace, most)
            });
            unpacked.await?.bytes
        }
        _ => {
            let how = lent::How {
                replace,
                most,
                moved,
            };
            if entry.size_bytes >= lent::LARGE
                && let Some(bytes) = lent::download(client, id, &from, to.clone(), how).await?
            {
                return Ok(Copied { destination, bytes });
            }
            let archive = moved.counting(client.read_tree(id, from.into()).await?);
            let written = receive(archive, move |source| {
                unpack_file(source, &to, replace, most)
            });
            written.await?
        }
    };
    Ok(Copied { destination, bytes })
}

/// What a sandbox sends is trusted with nothing: it goes to a new name or over plain files, has no
/// devices, owners or special permission bits, and is bounded.
pub async fn receive<T: Send + 'static>(
    mut content: ByteStream,
    work: impl FnOnce(Source) -> Result<T> + Send + 'static,
) -> Result<T> {
    let (sender, receiver) = mpsc::channel::<Result<Bytes>>(QUEUE);
    let working = tokio::task::spawn_blocking(move || work(Source::new(receiver)));
    while let Some(chunk) = content.next().await {
        let failed = chunk.is_err();
        if sender.send(chunk).await.is_err() || failed {
            break;
        }
    }
    drop(sender);
    working
        .await
        .map_err(|_| Error::internal("copying ended in a bug"))?
}

/// A stream, for blocking code to read.
pub struct Source {
    chunks: mpsc::Receiver<Result<Bytes>>,
    current: Bytes,
}

impl Source {
    fn new(chunks: mpsc::Receiver<Result<Bytes>>) -> Source {
        Source {
            chunks,
            current: Bytes::new(),
        }
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        while self.current.is_empty() {
            match self.chunks.blocking_recv() {
                Some(Ok(chunk)) => self.current = chunk,
                Some(Err(error)) => return Err(std::io::Error::other(error)),
                None => return Ok(0),
            }
        }
        let length = buffer.len().min(self.current.len());
        buffer[..length].copy_from_slice(&self.current.split_to(length));
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides() {
        assert!(matches!("sb-a:/x".parse(), Ok(Side::There(_, _))));
        for text in ["file", "./sb-a:/x", "/abs", "a:b", "C:\\x"] {
            assert!(matches!(text.parse(), Ok(Side::Here(_))), "{text}");
        }
        assert!("UPPER:/x".parse::<Side>().is_err());
    }

    #[test]
    fn names() {
        assert_eq!(name(b"/a/b").unwrap(), b"b");
        assert_eq!(name(b"/a/b//").unwrap(), b"b");
        assert_eq!(name(b"b").unwrap(), b"b");
        for path in [&b"/"[..], b"", b"/a/..", b"."] {
            assert!(name(path).is_err());
        }
    }
}
