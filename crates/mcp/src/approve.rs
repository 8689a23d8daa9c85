//! Asking a person before something is opened or taken away.
//!
//! One function for both ways a client can be asked. Before revision 2026-07-28 the server
//! sends a question (elicitation) and waits. From it on the server may not ask: it answers
//! "input required" with the question and a sealed note, and the client calls again with
//! the person's answer and the note. The note is bound to the tool and its arguments, holds
//! for some minutes, and is good for one call.

use crate::call::{Call, Stop, is_stateless};
use motu_core::hint;
use motu_core::hint::host;
use motu_core::{Error, ErrorKind, Result, limits};
use rmcp::model::{
    ElicitRequest, ElicitRequestParams, ElicitationAction, ElicitationSchema, InputRequest,
    InputRequests, InputRequiredResult, RequestStateCodec, SealOptions,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use std::str::FromStr;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long a person may think.
const PATIENCE: Duration = Duration::from_secs(limits::MCP_APPROVAL_SECONDS.default);
/// Notes that were used, so that none is used twice within its time.
const USED: usize = 1024;
/// The one question of a round.
const QUESTION: &str = "approval";

/// When a person is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Approvals {
    /// Always; what cannot be asked is refused.
    #[default]
    Always,
    /// When the client can ask; what it cannot ask the operator has approved in advance.
    Auto,
    /// Nobody: the operator has approved everything in advance.
    Never,
}

impl Approvals {
    pub fn as_str(self) -> &'static str {
        match self {
            Approvals::Always => "always",
            Approvals::Auto => "auto",
            Approvals::Never => "never",
        }
    }
}

impl FromStr for Approvals {
    type Err = Error;

    fn from_str(text: &str) -> Result<Approvals> {
        match text {
            "always" => Ok(Approvals::Always),
            "auto" => Ok(Approvals::Auto),
            "never" => Ok(Approvals::Never),
            other => Err(
                Error::invalid(format!("there is no approval mode {other:?}"))
                    .hint("one of: always, auto, never"),
            ),
        }
    }
}

/// The tool and its arguments, as the note is bound to them.
pub fn binding(tool: &str, arguments: &Map<String, Value>) -> Vec<u8> {
    let mut digest = Sha256::new();
    digest.update(tool.as_bytes());
    digest.update([0]);
    digest.update(serde_json::to_vec(arguments).unwrap_or_default());
    digest.finalize().to_vec()
}

/// Seals notes, and opens each once.
pub struct Seal {
    codec: RequestStateCodec,
    used: Mutex<VecDeque<String>>,
}

impl Seal {
    pub fn new() -> Seal {
        let mut key = vec![0u8; RequestStateCodec::MIN_KEY_LENGTH];
        getrandom::fill(&mut key).expect("the kernel's random source always answers");
        Seal {
            codec: RequestStateCodec::new_unchecked(key),
            used: Mutex::new(VecDeque::new()),
        }
    }

    pub fn note(&self, binding: &[u8]) -> String {
        let nonce = motu_core::id::random_name(26);
        let options = SealOptions::new().associated_data(binding).ttl(PATIENCE);
        self.codec.seal_with(nonce.as_bytes(), &options)
    }

    /// Whether the note is ours, of this very call, fresh and unused.
    pub fn redeem(&self, note: &str, binding: &[u8]) -> bool {
        if self.codec.open_with(note, binding).is_err() {
            return false;
        }
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.iter().any(|one| one == note) {
            return false;
        }
        used.push_back(note.to_string());
        if used.len() > USED {
            used.pop_front();
        }
        true
    }
}

/// Whether the client has somebody who fills in forms.
fn can_be_asked(context: &RequestContext<RoleServer>) -> bool {
    let capabilities = context.client_capabilities();
    let Some(elicitation) = capabilities.and_then(|capabilities| capabilities.elicitation) else {
        return false;
    };
    // In older revisions a client without any mode supports forms.
    elicitation.form.is_some() || elicitation.url.is_none()
}

fn form(question: &str) -> ElicitRequestParams {
    let schema: ElicitationSchema = serde_json::from_value(json!({
        "type": "object",
        "properties": {"approve": {"type": "boolean", "title": "Approve"}},
        "required": ["approve"],
    }))
    .expect("the schema of a yes or no is one");
    ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: question.to_string(),
        requested_schema: schema,
    }
}

fn declined(question: &str) -> Error {
    Error::new(
        ErrorKind::Denied,
        format!("the user did not approve: {question}"),
    )
    .hint("do not try again unless the user asks for it")
}

impl Call {
    /// Goes on only when a person has said yes, or nobody has to be asked.
    pub async fn approve(&self, question: &str) -> std::result::Result<(), Stop> {
        let mode = self.shared.options.approvals;
        match (mode, can_be_asked(&self.context)) {
            (Approvals::Never, _) | (Approvals::Auto, false) => Ok(()),
            (Approvals::Always, false) => Err(Error::new(
                ErrorKind::Denied,
                format!(
                    "this needs a person's approval, and this client cannot ask for it: {question}"
                ),
            )
            .hint(hint![
                "use a client with elicitation; or approve such calls in advance: ",
                host("motu mcp serve --approvals auto"),
                ", or in the settings of the client: ",
                host("motu mcp config CLIENT --approvals auto --install"),
            ])
            .into()),
            (_, true) if is_stateless(&self.context) => self.ask_by_retry(question),
            (_, true) => self.ask_now(question).await,
        }
    }

    /// Asks about a new machine: once about all that is said of it, and about none at all only the
    /// first time. What the operator has not allowed nobody is asked for: the gate refuses it.
    pub async fn approve_made(
        &self,
        allow_host_compat: bool,
        network: Option<String>,
    ) -> std::result::Result<(), Stop> {
        let asked = &self.shared.unwalled;
        let host = allow_host_compat
            && self.shared.options.leave.unwalled
            && !asked.load(Ordering::Relaxed);
        let host = host.then(|| {
            "Let this server run commands on this host itself, without isolation, from now on?"
                .to_string()
        });
        let alone = host.is_some();
        let questions: Vec<String> = [host, network].into_iter().flatten().collect();
        if questions.is_empty() {
            return Ok(());
        }
        self.approve(&questions.join(" ")).await?;
        if alone {
            asked.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn ask_now(&self, question: &str) -> std::result::Result<(), Stop> {
        let peer = &self.context.peer;
        let asked = peer
            .create_elicitation_with_timeout(form(question), Some(PATIENCE))
            .await
            .map_err(|error| {
                Error::unavailable(format!("the client could not ask the user: {error}"))
            })?;
        let yes = asked.action == ElicitationAction::Accept
            && asked
                .content
                .is_some_and(|content| content["approve"] == true);
        match yes {
            true => Ok(()),
            false => Err(declined(question).into()),
        }
    }

    fn ask_by_retry(&self, question: &str) -> std::result::Result<(), Stop> {
        let retry = &self.retry;
        let answer = retry.responses.as_ref().and_then(|all| all.get(QUESTION));
        if let (Some(note), Some(answer)) = (&retry.state, answer)
            && self.shared.seal.redeem(note, &retry.binding)
        {
            let yes = answer["action"] == "accept" && answer["content"]["approve"] == true;
            return match yes {
                true => Ok(()),
                false => Err(declined(question).into()),
            };
        }
        // Without a valid note the question has not been answered yet.
        let mut requests = InputRequests::new();
        let ask = InputRequest::Elicitation(ElicitRequest::new(form(question)));
        requests.insert(QUESTION.to_string(), ask);
        let note = self.shared.seal.note(&retry.binding);
        Err(Stop::Ask(Box::new(InputRequiredResult::new(
            Some(requests),
            Some(note),
        ))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_good_once_and_for_its_own_call() {
        let seal = Seal::new();
        let call = binding("workspace_delete", &Map::new());
        let other = binding("workspace_reset", &Map::new());
        let note = seal.note(&call);
        assert!(!seal.redeem(&note, &other));
        assert!(!seal.redeem("rs1.a.b", &call));
        assert!(!Seal::new().redeem(&note, &call));
        assert!(seal.redeem(&note, &call));
        assert!(!seal.redeem(&note, &call));
    }
}
