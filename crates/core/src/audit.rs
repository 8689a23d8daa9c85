//! The audit log as its readers see it, and what answers say of themselves for it.

use crate::ask::{Ask, Part};
use crate::hint;
use crate::hint::verb;
use crate::{Error, Isolation, Result, SandboxId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::sync::atomic::{AtomicU16, Ordering};

/// The name of one call in the audit log: `run_`, the time in milliseconds, a counter and
/// randomness. Names of one daemon sort by time.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, utoipa::ToSchema)]
#[schema(value_type = String, example = "run_0199c2f4a1b80001c0ffee0123456789")]
pub struct AuditId(String);

impl AuditId {
    /// A fresh one.
    pub fn generate() -> AuditId {
        static COUNT: AtomicU16 = AtomicU16::new(0);
        let millis = jiff::Timestamp::now().as_millisecond();
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut random = [0u8; 8];
        getrandom::fill(&mut random).expect("the kernel's random source always answers");
        let random = u64::from_le_bytes(random);
        AuditId(format!("run_{millis:012x}{count:04x}{random:016x}"))
    }

    pub fn parse(text: &str) -> Result<AuditId> {
        let digits = text.strip_prefix("run_").unwrap_or_default();
        let good = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        match digits.len() == 32 && digits.bytes().all(good) {
            true => Ok(AuditId(text.to_string())),
            false => Err(Error::invalid("that is not the id of a call").hint(hint![
                "ids are `run_` and 32 digits; ",
                verb("list_audit"),
                " shows them"
            ])),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

tokio::task_local! {
    static CURRENT: Option<AuditId>;
}

/// Does something on behalf of a call, which [`current`] then names.
pub async fn on_behalf<T>(id: Option<AuditId>, work: impl Future<Output = T>) -> T {
    CURRENT.scope(id, work).await
}

/// The same for what is done on a thread of its own.
pub fn on_behalf_of<T>(id: Option<AuditId>, work: impl FnOnce() -> T) -> T {
    CURRENT.sync_scope(id, work)
}

/// The call that is being made, if one is and it is recorded.
pub fn current() -> Option<AuditId> {
    CURRENT.try_with(Clone::clone).ok().flatten()
}

impl fmt::Display for AuditId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for AuditId {
    fn deserialize<D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> std::result::Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        AuditId::parse(&text).map_err(serde::de::Error::custom)
    }
}

impl Part for AuditId {
    const FORM: &'static str = crate::form::AUDIT_ID;

    fn text(part: &AuditId) -> String {
        part.to_string()
    }

    fn read(text: &str) -> Result<AuditId> {
        AuditId::parse(text)
    }
}

/// What is known of a call besides who made it: where it ran and how it went. Never what was
/// said, printed or written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct Facts {
    /// The sandbox that the call made; the entry names it as its own.
    #[serde(skip)]
    pub made: Option<SandboxId>,
    /// The hash of the policy that was applied; the entry has it as its own.
    #[serde(skip)]
    pub policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// Of the environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Limits that were reached: `timeout_seconds`, `mem_mib`, `max_output_bytes`, or the one that
    /// an error names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<String>,
    /// What came out: of a command, a file, a stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_out: Option<u64>,
    /// What went in: the content of a file that was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_in: Option<u64>,
}

impl Facts {
    pub fn reached(&mut self, limit: &str, reached: bool) {
        if reached && !self.limits.iter().any(|known| known == limit) {
            self.limits.push(limit.to_string());
        }
    }

    /// The limit that an error names, if it does.
    pub fn failed(&mut self, error: &Error) {
        if let Some(limit) = error.details.get("limit").and_then(Value::as_str) {
            self.reached(limit, true);
        }
    }
}

/// Whether an entry is about a whole call, or about one end of a live session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    Whole,
    Begin,
    End,
}

/// Who called, through which face.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AuditCaller {
    /// `uid:` and a user of the host, `key:`, the id of a key, `@` and its project, `remote`, or
    /// `address:` and from where a wrong key came.
    pub who: String,
    /// `socket` or `http`.
    pub face: String,
    /// Counts the requests of one daemon.
    pub request: u64,
}

/// One call, as the gate tells it to the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AuditCall {
    pub id: AuditId,
    pub stage: Stage,
    /// When the call began: RFC 3339 in UTC with nanoseconds.
    pub time: String,
    pub caller: AuditCaller,
    pub verb: String,
    /// What a caller needs to be granted for it.
    pub permission: String,
    pub effect: String,
    /// `allowed` or `denied` by the gate; `none` where it failed before the gate decided.
    pub decision: String,
    pub sandbox_id: Option<SandboxId>,
    /// The keyed hash (HMAC-SHA-256) of the request's canonical JSON.
    pub request: Option<String>,
    /// The hash of the policy that was applied, where there was one.
    pub policy: Option<String>,
    /// `ok`, the kind of the error, `open` at the beginning of a session, or `abandoned` when the
    /// caller left before the answer.
    pub outcome: String,
    pub facts: Facts,
    /// Nanoseconds, as text: they may be more than JSON numbers hold.
    pub duration_ns: String,
}

/// A record of the log, as it is stored: see docs/audit.md.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AuditEntry {
    pub v: u64,
    #[serde(rename = "type")]
    pub kind: String,
    pub seq: u64,
    #[serde(flatten)]
    pub call: AuditCall,
    /// The hash of the record before.
    pub prev: String,
    pub hash: String,
}

/// Which entries are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListAudit {
    /// Whose calls; the gate says, not the caller. Everybody's for whoever is no project.
    #[serde(skip)]
    pub owner: String,
    /// Only of this sandbox or workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<SandboxId>,
    /// Only of this verb.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verb: Option<String>,
    /// Only what was not `ok`.
    pub failed: bool,
    /// Only what changes or runs something.
    pub changes: bool,
    /// Only older ones than this number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before_seq: Option<u64>,
    /// The newest of them; default 50.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The `next_cursor` of the page before, which has newer ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Entries, oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AuditList {
    pub count: u64,
    #[schema(value_type = Vec<AuditEntry>)]
    pub entries: Vec<Value>,
    /// There are older ones: ask with this as `before_seq`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_seq: Option<u64>,
    /// The same as other lists say it: ask with this as `cursor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Where following begins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FollowAudit {
    /// How many of the newest entries come first; default 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail: Option<u64>,
}

/// What an auditor kept from before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VerifyAudit {
    /// The hash of a checkpoint or entry that must be in the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expect: Option<String>,
    /// The public key that must have signed it; otherwise the log's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_key: Option<String>,
}

/// What is wrong at one place of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AuditProblem {
    /// The file, or empty where it is about the whole.
    pub segment: String,
    /// The line in it, from 1 on.
    pub line: u64,
    /// The number of the entry, where it can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    pub message: String,
}

/// What a verification found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AuditVerified {
    pub ok: bool,
    pub segments: u64,
    /// Calls among the records.
    pub calls: u64,
    pub records: u64,
    pub checkpoints: u64,
    pub first_seq: u64,
    pub last_seq: u64,
    /// The hash of the last checkpoint: keep it, and `--expect` it later.
    pub head: String,
    pub public_key: String,
    /// Entries until this number were removed by retention, and a signed note says so.
    pub removed_through: u64,
    /// At most 100.
    pub problems: Vec<AuditProblem>,
}

/// The public key of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AuditKey {
    /// Ed25519, 64 hexadecimal digits.
    pub public_key: String,
    /// `sha256:` and the SHA-256 of the 32 bytes of the key.
    pub fingerprint: String,
}

/// An entry that proves itself: see docs/audit.md.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Receipt {
    pub v: u64,
    #[schema(value_type = AuditEntry)]
    pub entry: Value,
    /// From the entry's hash to the checkpoint's root: `side` and `hash` of each neighbour.
    #[schema(value_type = Vec<Object>)]
    pub path: Vec<Value>,
    #[schema(value_type = Object)]
    pub checkpoint: Value,
    pub public_key: String,
}

impl Ask for ListAudit {
    fn belongs_to(&mut self, owner: &str) {
        self.owner = owner.to_string();
    }
}
/// What is said of a call that is not in the log, or not in the part of it that the caller sees.
pub fn unknown(id: impl fmt::Display) -> Error {
    Error::not_found(format!("{id} is not in the audit log")).hint(hint![
        "calls older than the log keeps are removed; ",
        verb("list_audit"),
        " shows the newest"
    ])
}

impl Ask for FollowAudit {}
impl Ask for VerifyAudit {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_time_and_are_read_back() {
        let ids: Vec<AuditId> = (0..100).map(|_| AuditId::generate()).collect();
        assert!(ids.is_sorted());
        assert_eq!(AuditId::parse(ids[0].as_str()).unwrap(), ids[0]);
        for wrong in ["", "run_", "run_0199C2F4A1B80001C0FFEE0123456789", "sb-a"] {
            assert!(AuditId::parse(wrong).is_err(), "{wrong}");
        }
    }
}
