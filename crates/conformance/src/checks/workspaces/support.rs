//! Short forms of the workspace verbs, for readable checks.

use crate::life::{Life, refused};
use motu_core::exec::ExecResult;
use motu_core::workspace::*;
use motu_core::{ErrorKind, Program, Result};

pub(super) fn request(life: &Life) -> CreateWorkspace {
    let sandbox = life.request();
    CreateWorkspace {
        environment: sandbox.environment,
        runtime: sandbox.runtime,
        allow_host_compat: sandbox.allow_host_compat,
        accel: sandbox.accel,
        size: sandbox.size,
        ..CreateWorkspace::default()
    }
}

/// A workspace; `None` on a runtime that keeps no disks and must refuse.
pub(super) async fn create(life: &Life) -> Option<Workspace> {
    create_with(life, request(life)).await
}

pub(super) async fn create_with(life: &Life, request: CreateWorkspace) -> Option<Workspace> {
    let made = life.engine.create_workspace(request).await;
    if life.runtime.capabilities().keep {
        return Some(made.expect("a workspace is created"));
    }
    refused(ErrorKind::Unsupported, made);
    None
}

pub(super) fn script(text: &str) -> WorkspaceExec {
    WorkspaceExec::from(Program::shell(text))
}

pub(super) async fn run(life: &Life, workspace: &Workspace, text: &str) -> ExecResult {
    let ran = life
        .engine
        .exec_workspace(&workspace.workspace_id, script(text));
    let result = ran.await.expect("a command runs");
    assert_eq!(result.exit_code, 0, "{text}: {result:?}");
    result
}

pub(super) async fn write(life: &Life, workspace: &Workspace, path: &str, text: &str) {
    let write = WriteText {
        path: path.to_string(),
        text: text.to_string(),
    };
    let id = &workspace.workspace_id;
    let written = life.engine.write_workspace_file(id, write).await;
    assert_eq!(written.expect("written").bytes_written, text.len() as u64);
}

pub(super) async fn read(life: &Life, workspace: &Workspace, path: &str) -> Result<String> {
    let id = &workspace.workspace_id;
    let file = life
        .engine
        .read_workspace_file(id, ReadText::new(path, None))
        .await?;
    Ok(file.content)
}

pub(super) async fn read_text(life: &Life, workspace: &Workspace, path: &str) -> String {
    read(life, workspace, path).await.expect("read")
}
