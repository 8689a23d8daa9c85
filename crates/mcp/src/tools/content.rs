//! What is in `/workspace`, and on the disk of a workspace that is stopped.

use super::{PATH, WORKSPACE_ID, count, host_path};
use crate::OUTPUT_BUDGET;
use crate::answer::Answer;
use crate::arguments::Arguments;
use crate::call::{Call, Stop};
use crate::cut;
use crate::progress::Seen;
use crate::schema::{Field, flag, limited, text};
use crate::tool::{Effect, Tool, run};
use motu_core::files::FileType;
use motu_core::limits;
use motu_core::workspace::{
    DiffOptions, DiffReport, ExportDisk, ExportFiles, ExportOptions, FileText, ListPaths, Patch,
    PatchReport, PathList, ReadText, SyncPush, WriteText,
};
use serde_json::json;

/// Paths that fit an answer.
const PATHS: usize = 400;

const MAX_BYTES: Field = limited("max_bytes", &limits::FILE_TEXT_BYTES);
const OUTPUT_PATH: Field = text("output_path", limits::PATH_BYTES.max)
    .required()
    .about("Host path: a new name, or an empty directory.");
const LISTED: &[(&str, &str)] = &[
    ("workspace_id", "string"),
    ("path", "string"),
    ("entries", "array"),
    ("truncated", "boolean"),
];
const TEXT: &[(&str, &str)] = &[
    ("workspace_id", "string"),
    ("path", "string"),
    ("content", "string"),
    ("size_bytes", "integer"),
    ("truncated", "boolean"),
];

pub const TOOLS: &[Tool] = &[
    Tool {
        name: "workspace_file_list",
        verb: "list_workspace_files",
        about: "List files under /workspace.",
        fields: &[WORKSPACE_ID, PATH.usually("/workspace"), flag("recursive")],
        output: LISTED,
        effect: Effect::Reads,
        run: run!(file_list),
    },
    Tool {
        name: "workspace_file_read",
        verb: "read_workspace_file",
        about: "Read a text file under /workspace.",
        fields: &[WORKSPACE_ID, PATH.required(), MAX_BYTES],
        output: TEXT,
        effect: Effect::Reads,
        run: run!(file_read),
    },
    Tool {
        name: "workspace_file_write",
        verb: "write_workspace_file",
        about: "Create or replace a text file under /workspace, with its directories. To change a part of \
                a file use workspace_patch_apply.",
        fields: &[
            WORKSPACE_ID,
            PATH.required(),
            text("text", limits::FILE_WRITE_BYTES.max).required(),
        ],
        output: &[("path", "string"), ("bytes_written", "integer")],
        effect: Effect::Settles,
        run: run!(file_write),
    },
    Tool {
        name: "workspace_patch_apply",
        verb: "apply_workspace_patch",
        about: "Apply a unified diff (git style, --- a/x, +++ b/x) to /workspace: all of it or nothing.",
        fields: &[
            WORKSPACE_ID,
            text("patch", limits::PATCH_BYTES.max).required(),
        ],
        output: &[("changed", "boolean"), ("entries", "array")],
        effect: Effect::Runs,
        run: run!(patch_apply),
    },
    Tool {
        name: "workspace_diff",
        verb: "diff_workspace",
        about: "Show what changed in /workspace since it was made, as a list and a unified diff.",
        fields: &[WORKSPACE_ID],
        output: &[
            ("changed", "boolean"),
            ("entries", "array"),
            ("patch", "string"),
            ("truncated", "boolean"),
            ("rest", "string"),
        ],
        effect: Effect::Reads,
        run: run!(diff),
    },
    Tool {
        name: "workspace_sync_push",
        verb: "push_workspace_sync",
        about: "Copy a directory or archive of the host into a running workspace, over what is there.",
        fields: &[
            WORKSPACE_ID,
            text("source_path", limits::PATH_BYTES.max)
                .required()
                .about("Host path."),
            text("dest", limits::PATH_BYTES.max).usually("/workspace"),
        ],
        output: &[
            ("destination", "string"),
            ("sent_count", "integer"),
            ("bytes_written", "integer"),
        ],
        effect: Effect::Settles,
        run: run!(sync_push),
    },
    Tool {
        name: "workspace_export",
        verb: "export_workspace",
        about: "Copy a file or directory of /workspace to the host.",
        fields: &[WORKSPACE_ID, PATH.required(), OUTPUT_PATH],
        output: &[
            ("output_path", "string"),
            ("entry_count", "integer"),
            ("bytes_written", "integer"),
        ],
        effect: Effect::Changes,
        run: run!(export),
    },
    Tool {
        name: "workspace_disk_export",
        verb: "export_workspace_disk",
        about: "Copy the root disk of a stopped workspace to the host as a raw ext4 image.",
        fields: &[WORKSPACE_ID, OUTPUT_PATH],
        output: &[
            ("output_path", "string"),
            ("disk_format", "string"),
            ("bytes_written", "integer"),
        ],
        effect: Effect::Changes,
        run: run!(disk_export),
    },
    Tool {
        name: "workspace_disk_list",
        verb: "list_workspace_disk",
        about: "List files on the disk of a stopped workspace without starting it.",
        fields: &[WORKSPACE_ID, PATH.usually("/workspace"), flag("recursive")],
        output: LISTED,
        effect: Effect::Reads,
        run: run!(disk_list),
    },
    Tool {
        name: "workspace_disk_read",
        verb: "read_workspace_disk",
        about: "Read a text file on the disk of a stopped workspace without starting it.",
        fields: &[WORKSPACE_ID, PATH.required(), MAX_BYTES],
        output: TEXT,
        effect: Effect::Reads,
        run: run!(disk_read),
    },
];

fn listed(mut list: PathList) -> Answer {
    let all = list.entries.len();
    list.truncated |= all > PATHS;
    list.entries.truncate(PATHS);
    let mut text = String::new();
    for entry in &list.entries {
        text.push_str(&entry.path);
        match (&entry.link_target, entry.kind) {
            (Some(target), _) => text.push_str(&format!(" -> {target}")),
            (None, FileType::Directory) => text.push('/'),
            (None, _) => text.push_str(&format!(" {}", entry.size_bytes)),
        }
        text.push('\n');
    }
    if list.truncated {
        text.push_str("[there are more: list a directory below]\n");
    }
    if text.is_empty() {
        text.push_str("nothing there\n");
    }
    Answer::new(text, &list)
}

fn read(file: FileText) -> Answer {
    let mut text = file.content.clone();
    if file.truncated {
        super::line(&mut text);
        text.push_str(&format!(
            "[{} of {} bytes: raise max_bytes, or read a part with sed -n]\n",
            file.content.len(),
            file.size_bytes
        ));
    }
    Answer::new(text, &file)
}

async fn file_list(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let path = arguments.text_or("path", "/workspace");
    let recursive = arguments.flag("recursive");
    let id = arguments.workspace()?;
    Ok(listed(
        call.service()
            .list_workspace_files(&id, ListPaths::new(&path, recursive))
            .await?,
    ))
}

async fn file_read(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let path = arguments.text_or("path", "");
    let max = arguments.integer("max_bytes");
    let id = arguments.workspace()?;
    Ok(read(
        call.service()
            .read_workspace_file(&id, ReadText::new(&path, max))
            .await?,
    ))
}

async fn file_write(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let write = WriteText {
        path: arguments.text_or("path", ""),
        text: arguments.text_or("text", ""),
    };
    let id = arguments.workspace()?;
    let written = call.service().write_workspace_file(&id, write).await?;
    let text = format!("wrote {} bytes to {}", written.bytes_written, written.path);
    Ok(Answer::new(text, &written))
}

fn patched(report: &PatchReport) -> Answer {
    let mut text = count(report.entries.len() as u64, "file") + " changed\n";
    for entry in report.entries.iter().take(PATHS) {
        text.push_str(&format!("{} {}\n", entry.status, entry.path));
    }
    Answer::new(text, report)
}

async fn patch_apply(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let patch = arguments.text_or("patch", "");
    let id = arguments.workspace()?;
    Ok(patched(
        &call
            .service()
            .apply_workspace_patch(&id, Patch::new(&patch))
            .await?,
    ))
}

fn compared(mut report: DiffReport) -> Answer {
    let uri = format!("motu://workspaces/{}/diff", report.workspace_id);
    let all = report.entries.len();
    report.truncated |= all > PATHS;
    report.entries.truncate(PATHS);
    let mut text = String::new();
    for entry in &report.entries {
        text.push_str(&format!("{} {}\n", entry.status.as_str(), entry.path));
    }
    if !report.changed {
        text.push_str("nothing changed\n");
    }
    let cut = cut::head(&text, OUTPUT_BUDGET / 2);
    let mut text = cut.text;
    text.push_str(&report.patch);
    let mut answer = Answer::new(text, &report);
    if report.truncated {
        super::line(&mut answer.text);
        answer
            .text
            .push_str(&format!("[cut; all of it: resource {uri}]\n"));
        answer.structured["rest"] = uri.into();
    }
    answer
}

async fn diff(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let options = DiffOptions {
        max_bytes: Some(OUTPUT_BUDGET as u64),
    };
    let id = arguments.workspace()?;
    Ok(compared(call.service().diff_workspace(&id, options).await?))
}

async fn sync_push(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let push = SyncPush {
        source_path: host_path(&arguments.text_or("source_path", ""))?,
        dest: arguments.text("dest"),
        gitignore: false,
    };
    let id = arguments.workspace()?;
    let work = call.service().push_workspace_sync(&id, push);
    let report = call.told(&Seen::default(), work).await?;
    let text = format!(
        "{} sent to {}, {} unchanged, {} bytes",
        count(report.sent_count, "file"),
        report.destination,
        report.unchanged_count,
        report.bytes_written
    );
    Ok(Answer::new(text, &report))
}

async fn export(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let path = arguments.text_or("path", "");
    let output = host_path(&arguments.text_or("output_path", ""))?;
    let id = arguments.workspace()?;
    let options = ExportOptions::default();
    let work = call
        .service()
        .export_workspace(&id, ExportFiles::new(&path, &output, options));
    let exported = call.told(&Seen::default(), work).await?;
    let text = format!(
        "copied {} bytes to {}",
        exported.bytes_written, exported.output_path
    );
    Ok(Answer::new(text, &exported))
}

async fn disk_export(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let output = host_path(&arguments.text_or("output_path", ""))?;
    let id = arguments.workspace()?;
    let options = ExportOptions::default();
    let work = call
        .service()
        .export_workspace_disk(&id, ExportDisk::new(&output, options));
    let exported = call.told(&Seen::default(), work).await?;
    let text = format!(
        "copied {} bytes to {}",
        exported.bytes_written, exported.output_path
    );
    Ok(Answer::new(text, &json!(exported)))
}

async fn disk_list(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let path = arguments.text_or("path", "/workspace");
    let recursive = arguments.flag("recursive");
    let id = arguments.workspace()?;
    Ok(listed(
        call.service()
            .list_workspace_disk(&id, ListPaths::new(&path, recursive))
            .await?,
    ))
}

async fn disk_read(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let path = arguments.text_or("path", "");
    let max = arguments.integer("max_bytes");
    let id = arguments.workspace()?;
    Ok(read(
        call.service()
            .read_workspace_disk(&id, ReadText::new(&path, max))
            .await?,
    ))
}
