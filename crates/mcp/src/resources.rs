//! What is too long for an answer, or is looked at by people: `motu://…`.
//!
//! A read returns a page; `offset` says where it begins, and `next_offset` in `_meta` where
//! the next one does.

use crate::address::{Named, parse, terminal};
use crate::tools::{log, record};
use crate::{Shared, cut};
use futures_util::StreamExt;
use motu_core::hint;
use motu_core::hint::host;
use motu_core::policy::ReadDecisions;
use motu_core::terminal::{ReadTranscript, ScreenFormat, TerminalId};
use motu_core::workspace::{DiffOptions, LogOptions};
use motu_core::{Error, ErrorKind, Result, SandboxId};
use rmcp::model::{MetaObject, Resource, ResourceContents, ResourceTemplate};
use serde_json::json;

/// Text in one page.
const PAGE: usize = motu_core::limits::MCP_RESOURCE_BYTES.default as usize;
/// A recording longer than this is read in pages like everything else; more is never held.
const RECORDING: usize = motu_core::limits::MCP_RECORDING_BYTES.max as usize;
/// Sessions or workspaces whose resources are listed.
const LISTED: usize = 100;

/// What a client can be told the news of.
#[derive(Debug)]
pub enum Live {
    Terminal(TerminalId),
    Decisions(SandboxId),
}

/// One page of a text.
fn page(uri: &str, text: &str, offset: u64) -> ResourceContents {
    let from = cut::border(text, usize::try_from(offset).unwrap_or(usize::MAX));
    let part = cut::head(&text[from..], PAGE);
    let next = from + part.text.len();
    let mut meta = MetaObject::new();
    meta.0.insert("total_bytes".to_string(), text.len().into());
    if next < text.len() {
        meta.0.insert("next_offset".to_string(), next.into());
    }
    ResourceContents::text(part.text, uri).with_meta(meta)
}

impl Shared {
    /// What a client may offer a person to look at now.
    pub async fn resources(&self) -> Result<Vec<Resource>> {
        let kept = self.outputs.list();
        let mut all: Vec<Resource> = kept
            .into_iter()
            .map(|(handle, size)| {
                Resource::new(format!("motu://outputs/{handle}"), handle).with_size(size as u64)
            })
            .collect();
        if !(self.options.awake)() {
            return Ok(all);
        }
        if self.options.profile.has_workspaces() {
            for one in self
                .service
                .list_workspaces(Default::default())
                .await?
                .iter()
                .take(LISTED)
            {
                let id = &one.workspace_id;
                for part in ["logs", "diff"] {
                    let uri = format!("motu://workspaces/{id}/{part}");
                    all.push(Resource::new(uri, format!("{part} of {id}")));
                }
            }
        }
        if self.options.profile.has_terminals() {
            for one in self
                .service
                .list_terminals(Default::default())
                .await?
                .iter()
                .take(LISTED)
            {
                let id = TerminalId::parse(&one.session_id)?;
                for part in ["screen", "transcript", "recording"] {
                    let name = format!("{part} of {id}");
                    all.push(Resource::new(terminal(&id, part), name));
                }
            }
        }
        Ok(all)
    }

    pub fn resource_templates(&self) -> Vec<ResourceTemplate> {
        let workspaces: &[(&str, &str)] = &[
            (
                "motu://workspaces/{workspace_id}/logs{?offset}",
                "commands and their output",
            ),
            (
                "motu://workspaces/{workspace_id}/diff{?offset}",
                "what changed, as a patch",
            ),
            (
                "motu://workspaces/{workspace_id}/services/{service_name}/logs{?offset}",
                "a service's output",
            ),
            (
                "motu://sandboxes/{sandbox_id}/decisions{?offset}",
                "decisions about a sandbox's traffic, one JSON value per line",
            ),
        ];
        let terminals: &[(&str, &str)] = &[
            ("motu://terminals/{session_id}/screen", "the screen as text"),
            (
                "motu://terminals/{session_id}/screen.png",
                "the screen as a picture",
            ),
            (
                "motu://terminals/{session_id}/transcript{?offset}",
                "all that was printed",
            ),
            (
                "motu://terminals/{session_id}/recording{?offset}",
                "an asciicast v3 recording",
            ),
        ];
        let outputs: &[(&str, &str)] = &[("motu://outputs/{handle}{?offset}", "a whole output")];
        let profile = self.options.profile;
        let of_workspaces = match (profile.has_services(), profile.has_workspaces()) {
            (true, _) => workspaces,
            (false, true) => &workspaces[..2],
            (false, false) => &[],
        };
        let of_terminals = if profile.has_terminals() {
            terminals
        } else {
            &[]
        };
        let shown = of_workspaces.iter().chain(of_terminals).chain(outputs);
        shown
            .map(|(uri, name)| ResourceTemplate::new(*uri, *name))
            .collect()
    }

    /// What a URI names, if this profile has it.
    fn named(&self, uri: &str) -> Result<(Named, u64)> {
        let (named, offset) = parse(uri)?;
        let profile = self.options.profile;
        if !named.is_of(profile) {
            return Err(Error::new(
                ErrorKind::Denied,
                format!("the profile {} has no such resource", profile.as_str()),
            )
            .hint("resources/templates/list shows what there can be"));
        }
        Ok((named, offset))
    }

    /// What changes what is at a URI.
    pub fn live(&self, uri: &str) -> Result<Live> {
        match self.named(uri)?.0 {
            Named::Screen(id, _) | Named::Transcript(id) | Named::Recording(id) => {
                Ok(Live::Terminal(id))
            }
            Named::Decisions(id) => Ok(Live::Decisions(id)),
            _ => Err(Error::invalid(format!("{uri} cannot be followed")).hint(
                "the screen, the transcript and the recording of a terminal can, and decisions",
            )),
        }
    }

    pub async fn read_resource(&self, uri: &str) -> Result<ResourceContents> {
        let (named, offset) = self.named(uri)?;
        match named {
            Named::Output(handle) => {
                let text = self.outputs.find(&handle).ok_or_else(|| {
                    Error::not_found("that output is no longer kept").hint("run it again")
                })?;
                Ok(page(uri, &text, offset))
            }
            Named::Logs(id) => {
                let log = self.service.logs_workspace(&id).await?;
                let text: String = log.entries.iter().map(record).collect();
                Ok(page(uri, &text, offset))
            }
            Named::Diff(id) => {
                let all = DiffOptions {
                    max_bytes: Some(motu_core::limits::DIFF_BYTES.max),
                };
                let report = self.service.diff_workspace(&id, all).await?;
                Ok(page(uri, &report.patch, offset))
            }
            Named::ServiceLogs(id, name) => {
                let all = LogOptions {
                    tail_lines: None,
                    all: true,
                };
                let logs = self.service.logs_service(&id, &name, all).await?;
                Ok(page(uri, &log(&logs), offset))
            }
            Named::Screen(id, format) => self.screen(uri, &id, format).await,
            Named::Transcript(id) => self.transcript(uri, &id, offset).await,
            Named::Recording(id) => self.recording(uri, &id, offset).await,
            Named::Decisions(id) => self.decisions(uri, &id, offset).await,
        }
    }

    /// A page of whole lines. `total_bytes` is where the next decision will be.
    async fn decisions(&self, uri: &str, id: &SandboxId, offset: u64) -> Result<ResourceContents> {
        let ask = ReadDecisions {
            follow: false,
            from: offset,
        };
        let mut stream = self.service.read_decisions(id, ask).await?;
        let mut bytes = Vec::new();
        while let Some(piece) = stream.next().await {
            bytes.extend_from_slice(&piece?);
            if bytes.len() > PAGE {
                break;
            }
        }
        let more = bytes.len() > PAGE;
        bytes.truncate(PAGE);
        let lines = bytes.iter().rposition(|byte| *byte == b'\n');
        bytes.truncate(lines.map_or(0, |last| last + 1));
        let mut meta = MetaObject::new();
        let next = offset + bytes.len() as u64;
        let name = if more { "next_offset" } else { "total_bytes" };
        meta.0.insert(name.to_string(), next.into());
        let text = String::from_utf8_lossy(&bytes);
        Ok(ResourceContents::text(text, uri)
            .with_mime_type("application/x-ndjson")
            .with_meta(meta))
    }

    async fn screen(
        &self,
        uri: &str,
        id: &TerminalId,
        format: ScreenFormat,
    ) -> Result<ResourceContents> {
        let screen = self.service.terminal_screen(id, (format).into()).await?;
        Ok(match format {
            ScreenFormat::Png => {
                ResourceContents::blob(screen.screen, uri).with_mime_type("image/png")
            }
            _ => ResourceContents::text(screen.screen, uri),
        })
    }

    async fn transcript(
        &self,
        uri: &str,
        id: &TerminalId,
        offset: u64,
    ) -> Result<ResourceContents> {
        let read = ReadTranscript {
            from: Some(offset),
            max_bytes: Some(PAGE as u64),
            strip_ansi: None,
        };
        let kept = self.service.terminal_transcript(id, read).await?;
        let mut meta = MetaObject::new();
        meta.0.insert("oldest".to_string(), kept.oldest.into());
        meta.0.insert("total_bytes".to_string(), kept.end.into());
        if kept.next_cursor < kept.end {
            meta.0
                .insert("next_offset".to_string(), kept.next_cursor.into());
        }
        Ok(ResourceContents::text(kept.text, uri).with_meta(meta))
    }

    async fn recording(&self, uri: &str, id: &TerminalId, offset: u64) -> Result<ResourceContents> {
        let mut stream = self.service.terminal_recording(id).await?;
        let mut bytes = Vec::new();
        while let Some(piece) = stream.next().await {
            let piece = piece?;
            if bytes.len() + piece.len() > RECORDING {
                return Err(Error::limit("the recording is too long to be read here")
                    .details(json!({"max_bytes": RECORDING}))
                    .hint(hint![host("motu terminal record"), " saves it to a file"]));
            }
            bytes.extend_from_slice(&piece);
        }
        let text = String::from_utf8_lossy(&bytes);
        Ok(page(uri, &text, offset).with_mime_type("application/x-asciicast"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_where_the_next_one_begins() {
        let text = "é".repeat(PAGE);
        let mut offset = 0;
        let mut seen = String::new();
        loop {
            let ResourceContents::TextResourceContents {
                text: part, meta, ..
            } = page("motu://outputs/x", &text, offset)
            else {
                panic!("text")
            };
            seen.push_str(&part);
            match meta.unwrap().0.get("next_offset") {
                Some(next) => offset = next.as_u64().unwrap(),
                None => break,
            }
        }
        assert_eq!(seen, text);
    }
}
