"""Workspaces, their snapshots, services and shells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cases.world import PATCH, World, sdk_output
from conftest import IMAGE, until

import motu as sdk

# Workspaces.


def create_workspace(w: World) -> None:
    seed = w.tmp / w.fresh("seed")
    seed.mkdir()
    (seed / "a.txt").write_text("seeded\n")
    made = w.motu.create_workspace(
        IMAGE, name="made", labels={"k": "v"}, network_policy="off", secrets={"TOKEN": "open-sesame"}, seed_path=seed
    )
    assert (made.name, made.labels, made.network_policy, made.mem_mib) == ("made", {"k": "v"}, "off", 1024)
    assert [one.name for one in made.secrets] == ["TOKEN"]
    assert "open-sesame" not in repr(made)
    assert w.motu.read_workspace_file(made.workspace_id, "a.txt").content == "seeded\n"
    w.motu.delete_workspace(made.workspace_id)


def list_workspaces(w: World) -> None:
    ws = w.ws
    assert ws in [one.workspace_id for one in w.motu.list_workspaces().workspaces]


def status_workspace(w: World) -> None:
    assert w.motu.status_workspace(w.ws).workspace_id == w.ws


def update_workspace(w: World) -> None:
    w.motu.update_workspace(w.ws, name="renamed", labels={"a": "b"})
    after = w.motu.update_workspace(w.ws, clear_name=True, clear_labels=["a"])
    assert (after.name, after.labels) == (None, {})


def delete_workspace(w: World) -> None:
    name = w.motu.create_workspace(IMAGE).workspace_id
    assert w.motu.delete_workspace(name).state == "destroyed"


def stop_workspace(w: World) -> None:
    assert w.motu.status_workspace(w.stopped).state == "stopped"


def start_workspace(w: World) -> None:
    assert w.motu.start_workspace(w.stopped).state == "running"
    assert w.motu.read_workspace_file(w.stopped, "kept.txt").content == "kept\n"
    w.motu.stop_workspace(w.stopped)


def exec_workspace(w: World) -> None:
    name = w.motu.create_workspace(IMAGE, secrets=[{"name": "TOKEN", "value": "open-sesame"}]).workspace_id
    result = w.motu.exec_workspace(name, command='echo ${#T}; pwd', secret_env={"TOKEN": "T"})
    assert result.stdout == "11\n/workspace\n"
    assert w.motu.exec_workspace(name, command="echo ${#TOKEN}", secret_env=["TOKEN"]).stdout == "11\n"
    w.motu.delete_workspace(name)


def exec_workspace_stream(w: World) -> None:
    assert sdk_output(w.motu.exec_workspace_stream(w.ws, command="pwd; exit 5")) == (b"/workspace\n", 5)


def logs_workspace(w: World) -> None:
    w.motu.exec_workspace(w.ws, command=["echo", "remembered"])
    assert w.motu.logs_workspace(w.ws).entries[-1].stdout == "remembered\n"


def undo_workspace(w: World) -> None:
    w.motu.exec_workspace(w.ws, command="echo x > undone.txt")
    assert w.motu.undo_workspace(w.ws, steps=1).removed_count == 1


def fork_workspace(w: World) -> None:
    copies = w.motu.fork_workspace(w.ws, count=2)
    assert copies.count == 2
    for one in copies.workspaces:
        w.motu.delete_workspace(one.workspace_id)


def push_workspace_sync(w: World) -> None:
    source = w.tmp / w.fresh("push")
    source.mkdir()
    (source / "pushed.txt").write_text("pushed\n")
    assert w.motu.push_workspace_sync(w.ws, source, dest="/workspace/in").entry_count >= 1
    assert w.motu.read_workspace_file(w.ws, "in/pushed.txt").content == "pushed\n"


def write_workspace_file(w: World) -> None:
    assert w.motu.write_workspace_file(w.ws, "w/x.txt", text="12345").size_bytes == 5


def read_workspace_file(w: World) -> None:
    w.motu.write_workspace_file(w.ws, "r.txt", text="12345")
    read = w.motu.read_workspace_file(w.ws, "r.txt", max_bytes=2)
    assert (read.content, read.truncated) == ("12", True)


def list_workspace_files(w: World) -> None:
    w.motu.write_workspace_file(w.ws, "l/l.txt", text="")
    paths = [one.path for one in w.motu.list_workspace_files(w.ws, "/workspace", True).entries]
    assert any(path.endswith("l/l.txt") for path in paths)


def edit_workspace(w: World) -> None:
    w.motu.write_workspace_file(w.ws, "e.txt", text="one two\n")
    edit = sdk.types.Edit(path="e.txt", old="two", new="three")
    assert w.motu.edit_workspace(w.ws, [edit]).modified == 1
    assert w.motu.read_workspace_file(w.ws, "e.txt").content == "one three\n"


def apply_workspace_patch(w: World) -> None:
    name = w.motu.create_workspace(IMAGE).workspace_id
    assert w.motu.apply_workspace_patch(name, patch=PATCH).added == 1
    w.motu.delete_workspace(name)


def diff_workspace(w: World) -> None:
    w.motu.write_workspace_file(w.ws, "d.txt", text="new\n")
    assert w.motu.diff_workspace(w.ws).changed


def export_workspace(w: World) -> None:
    w.motu.write_workspace_file(w.ws, "x.txt", text="out\n")
    target = w.tmp / w.fresh("export")
    w.motu.export_workspace(w.ws, "x.txt", output_path=target)
    assert target.read_text() == "out\n"


def reset_workspace(w: World) -> None:
    name = w.motu.create_workspace(IMAGE).workspace_id
    w.motu.write_workspace_file(name, "gone.txt", text="x")
    assert w.motu.reset_workspace(name).reset_count == 1
    assert not w.motu.diff_workspace(name).changed
    w.motu.delete_workspace(name)


def export_workspace_disk(w: World) -> None:
    target = w.tmp / w.fresh("disk")
    assert w.motu.export_workspace_disk(w.stopped, output_path=target).bytes_written == target.stat().st_size
    target.unlink()


def list_workspace_disk(w: World) -> None:
    paths = [one.path for one in w.motu.list_workspace_disk(w.stopped).entries]
    assert any(path.endswith("kept.txt") for path in paths)


def read_workspace_disk(w: World) -> None:
    assert w.motu.read_workspace_disk(w.stopped, "/workspace/kept.txt").content == "kept\n"


# Snapshots, services, shells.


def create_snapshot(w: World) -> None:
    name = w.fresh("snap")
    assert w.motu.create_snapshot(w.ws, name).snapshot_name == name


def list_snapshots(w: World) -> None:
    name = w.snapshot()
    assert {"baseline", name} <= {one.snapshot_name for one in w.motu.list_snapshots(w.ws).snapshots}


def delete_snapshot(w: World) -> None:
    name = w.snapshot()
    assert w.motu.delete_snapshot(w.ws, name).snapshot_name == name


def diff_snapshots(w: World) -> None:
    one = w.snapshot()
    w.motu.write_workspace_file(w.ws, w.fresh("s"), text="between\n")
    assert w.motu.diff_snapshots(w.ws, one, to=w.snapshot()).added == 1


def start_service(w: World) -> None:
    name = w.fresh("svc")
    started = w.motu.start_service(
        w.ws,
        name,
        command="touch /tmp/up; exec sleep 1000",
        readiness=sdk.types.ReadinessFile(path="/tmp/up"),
        ready_timeout_seconds=60,
    )
    assert started.state == "running"
    assert isinstance(started.readiness, sdk.types.ReadinessFile)
    w.motu.stop_service(w.ws, name)


def list_services(w: World) -> None:
    name = w.service()
    assert name in [one.service_name for one in w.motu.list_services(w.ws).services]
    w.motu.stop_service(w.ws, name)


def status_service(w: World) -> None:
    name = w.service()
    assert w.motu.status_service(w.ws, name).state == "running"
    w.motu.stop_service(w.ws, name)


def logs_service(w: World) -> None:
    name = w.service()
    assert w.motu.logs_service(w.ws, name, tail_lines=1).stdout == "up\n"
    w.motu.stop_service(w.ws, name)


def stop_service(w: World) -> None:
    assert w.motu.stop_service(w.ws, w.service()).state == "stopped"


def follow_service(w: World) -> None:
    followed(w, w.motu.follow_service)


def follow_service_output(w: World) -> None:
    followed(w, w.motu.follow_service_output)


def followed(w: World, follow: Callable[[str, str], Any]) -> None:
    name = w.fresh("svc")
    w.motu.start_service(w.ws, name, command="while :; do echo tick; sleep 0.1; done")
    with follow(w.ws, name) as stream:
        data = next(event.data for event in stream if isinstance(event, sdk.Output))
        assert data.startswith(b"tick")
    w.motu.stop_service(w.ws, name)


def open_shell(w: World) -> None:
    shell = w.motu.open_shell(w.ws, cols=100, rows=40)
    assert (shell.size.cols, shell.size.rows, shell.cwd) == (100, 40, "/workspace")
    w.motu.close_shell(w.ws, shell.shell_id)


def list_shells(w: World) -> None:
    shell = w.shell()
    assert shell in [one.shell_id for one in w.motu.list_shells(w.ws).shells]
    w.motu.close_shell(w.ws, shell)


def write_shell(w: World) -> None:
    shell = w.shell()
    assert w.motu.write_shell(w.ws, shell, input="true").shell_id == shell
    w.motu.close_shell(w.ws, shell)


def read_shell(w: World) -> None:
    shell = w.shell()
    w.motu.write_shell(w.ws, shell, input="echo $((6 * 7))")
    until(lambda: "42" in w.motu.read_shell(w.ws, shell, plain=True, wait_for_idle_ms=300).output)
    w.motu.close_shell(w.ws, shell)


def signal_shell(w: World) -> None:
    shell = w.shell()
    assert w.motu.signal_shell(w.ws, shell).shell_id == shell
    w.motu.close_shell(w.ws, shell)


def resize_shell(w: World) -> None:
    shell = w.shell()
    assert w.motu.resize_shell(w.ws, shell, 90, 20).size == sdk.types.TtySize(cols=90, rows=20)
    w.motu.close_shell(w.ws, shell)


def close_shell(w: World) -> None:
    shell = w.shell()
    assert w.motu.close_shell(w.ws, shell).shell_id == shell


def attach_shell(w: World) -> None:
    shell = w.shell()
    with w.motu.attach_shell(w.ws, shell) as stream:
        stream.write("echo $((6 * 7)); exit\n")
        assert b"42" in stream.read()[0]


def attach_shell_output(w: World) -> None:
    shell = w.shell()
    with w.motu.attach_shell_output(w.ws, shell) as stream:
        w.motu.write_shell(w.ws, shell, input="echo $((6 * 7)); exit")
        assert b"42" in stream.read()[0]
