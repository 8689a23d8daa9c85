//! Named states of `/workspace`.

use super::{CURSOR, LIMIT, WORKSPACE_ID, count, more, page};
use crate::answer::Answer;
use crate::arguments::Arguments;
use crate::call::{Call, Stop};
use crate::progress::Seen;
use crate::schema::{Field, text};
use crate::tool::{Effect, Tool, run};
use motu_core::limits;
use motu_core::workspace::{SaveAs, Snapshot};
use serde_json::json;

const SNAPSHOT_NAME: Field = text("snapshot_name", limits::SNAPSHOT_NAME_CHARS.max).required();
const SNAPSHOT: &[(&str, &str)] = &[
    ("workspace_id", "string"),
    ("snapshot_name", "string"),
    ("kind", "string"),
    ("entry_count", "integer"),
    ("changed_count", "integer"),
    ("created_at", "string"),
];

pub const TOOLS: &[Tool] = &[
    Tool {
        name: "snapshot_create",
        verb: "create_snapshot",
        about: "Save /workspace under a name before a risky step; workspace_reset brings it back.",
        fields: &[WORKSPACE_ID, SNAPSHOT_NAME],
        output: SNAPSHOT,
        effect: Effect::Changes,
        run: run!(create),
    },
    Tool {
        name: "snapshot_list",
        verb: "list_snapshots",
        about: "List the snapshots of a workspace, the baseline first.",
        fields: &[WORKSPACE_ID, LIMIT, CURSOR],
        output: &[
            ("workspace_id", "string"),
            ("count", "integer"),
            ("snapshots", "array"),
            ("next_cursor", "string?"),
        ],
        effect: Effect::Reads,
        run: run!(list),
    },
    Tool {
        name: "snapshot_delete",
        verb: "delete_snapshot",
        about: "Delete a named snapshot. The baseline cannot be deleted.",
        fields: &[WORKSPACE_ID, SNAPSHOT_NAME],
        output: SNAPSHOT,
        effect: Effect::Destroys,
        run: run!(delete),
    },
];

fn row(one: &Snapshot) -> String {
    let changes = count(one.changed_count, "change");
    format!(
        "{} ({}): {changes}, {}\n",
        one.snapshot_name, one.kind, one.created_at
    )
}

async fn create(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let id = arguments.workspace()?;
    let name = arguments.text_or("snapshot_name", "");
    let work = call.service().create_snapshot(&id, SaveAs::named(&name));
    let snapshot = call.told(&Seen::default(), work).await?;
    let saved = Answer::new(format!("saved {}", row(&snapshot)), &snapshot);
    Ok(saved.with("snapshot", json!(snapshot)))
}

async fn list(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let list = call
        .service()
        .list_snapshots(&arguments.workspace()?, page(&arguments))
        .await?;
    let mut text: String = list.snapshots.iter().map(row).collect();
    more(&mut text, list.next_cursor.as_deref());
    Ok(Answer::new(text, &list))
}

async fn delete(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let id = arguments.workspace()?;
    let name = arguments.text_or("snapshot_name", "");
    let snapshot = call.service().delete_snapshot(&id, &name).await?;
    Ok(Answer::new(format!("deleted {name}"), &snapshot).with("deleted", true))
}
