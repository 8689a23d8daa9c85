"""Every verb, once, with both clients: one table, and a test that nothing is missing in it."""

from __future__ import annotations

import contextlib
import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bridge import Bridge, Loop
from conftest import IMAGE, until

import motu as sdk
from motu import AsyncMotu, Motu, errors
from motu._verbs import OPERATIONS

PATCH = "--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+new\n"


class World:
    """A client, and what verbs can be tried on. Things are made when somebody asks for them."""

    def __init__(self, motu: Any, fresh: Callable[[str], str], tmp: Path) -> None:
        self.motu = motu
        self.fresh = fresh
        self.tmp = tmp
        self._made: dict[str, str] = {}

    def _once(self, word: str, make: Callable[[str], object]) -> str:
        if word not in self._made:
            name = self.fresh(word)
            make(name)
            self._made[word] = name
        return self._made[word]

    @property
    def box(self) -> str:
        return self._once("box", lambda name: self.motu.create_sandbox(IMAGE, sandbox_id=name, keep=True))

    @property
    def ws(self) -> str:
        return self._once("ws", lambda name: self.motu.create_workspace(IMAGE, workspace_id=name, checkpoint=True))

    @property
    def stopped(self) -> str:
        def make(name: str) -> None:
            self.motu.create_workspace(IMAGE, workspace_id=name)
            self.motu.write_workspace_file(name, "kept.txt", text="kept\n")
            self.motu.stop_workspace(name)

        return self._once("stopped", make)

    @property
    def template(self) -> str:
        return self._once("template", lambda name: self.motu.put_template(name, IMAGE))

    @property
    def terminal(self) -> str:
        box = self.box
        return self._once("term", lambda name: self.motu.open_terminal(name, sandbox_id=box, command=["sh"]))

    @contextlib.contextmanager
    def machine(self, **more: Any) -> Iterator[str]:
        """A machine of its own for something that changes it."""
        name = self.motu.create_sandbox(IMAGE, **more).sandbox_id
        try:
            yield name
        finally:
            self.motu.destroy_sandbox(name)

    def file(self, text: str = "text\n") -> str:
        path = f"/tmp/{self.fresh('file')}"
        self.motu.write_file(self.box, path, text.encode())
        return path

    def process(self, script: str, **more: Any) -> str:
        tag = self.fresh("job")
        self.motu.exec_background(self.box, script, tag=tag, no_timeout=True, **more)
        return tag

    def service(self) -> str:
        name = self.fresh("svc")
        ready = {"type": "log", "pattern": "up"}
        self.motu.start_service(self.ws, name, command="echo up; exec sleep 1000", readiness=ready)
        return name

    def shell(self) -> str:
        return str(self.motu.open_shell(self.ws).shell_id)

    def snapshot(self) -> str:
        name = self.fresh("snap")
        self.motu.create_snapshot(self.ws, name)
        return name


def tar_of(name: str, data: bytes) -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    return whole.getvalue()


def sdk_output(stream: Any) -> tuple[bytes, int]:
    """What a process wrote to its standard output, and its exit code."""
    with stream:
        stdout, _ = stream.read()
        return stdout, stream.exited.exit_code


def first(lines: Any) -> Any:
    with lines:
        return next(iter(lines))


# Service.


def version(w: World) -> None:
    assert w.motu.version().api_version == "1"


def doctor(w: World) -> None:
    assert w.motu.doctor(deep=False).runtimes


def openapi(w: World) -> None:
    assert w.motu.openapi()["openapi"].startswith("3.")


def backup(w: World) -> None:
    path = w.tmp / w.fresh("backup")
    assert w.motu.backup(path).output_path == str(path)
    assert path.exists()


# Environments.


def list_environments(w: World) -> None:
    assert IMAGE in [one.name for one in w.motu.list_environments().environments]


def pull_environment(w: World) -> None:
    heard: list[Any] = []
    assert w.motu.pull_environment(IMAGE, progress=heard.append).installed
    assert all(isinstance(step, sdk.types.ProgressEvent) for step in heard)


def inspect_environment(w: World) -> None:
    assert w.motu.inspect_environment(IMAGE).name == IMAGE


def tag_environment(w: World) -> None:
    assert w.motu.tag_environment(IMAGE, "mine:1").name == "mine:1"


def send_build_context(w: World) -> None:
    assert w.motu.send_build_context(tar_of("a.txt", b"built")).context_id


def build_environment(w: World) -> None:
    context = w.motu.send_build_context(tar_of("a.txt", b"built")).context_id
    text = f"FROM {IMAGE}\nCOPY a.txt /a.txt\nRUN cat /a.txt\n"
    heard: list[Any] = []
    built = w.motu.build_environment(dockerfile=text, context_id=context, name="built:1", progress=heard.append)
    assert built.name == "built:1"
    assert built.build is not None and built.build.steps == 2


def export_environment(w: World) -> None:
    with tarfile.open(fileobj=io.BytesIO(w.motu.export_environment(IMAGE))) as archive:
        assert "index.json" in archive.getnames()


def import_environment(w: World) -> None:
    archive = w.motu.export_environment(IMAGE)
    assert w.motu.import_environment(archive, name="mine:3").name == "mine:3"


def remove_environment(w: World) -> None:
    w.motu.tag_environment(IMAGE, "mine:2")
    assert w.motu.remove_environment("mine:2").removed is not None
    assert "mine:2" not in [one.name for one in w.motu.list_environments().environments]


def prune_environments(w: World) -> None:
    assert w.motu.prune_environments().freed_bytes >= 0


# Templates.


def put_template(w: World) -> None:
    name = w.fresh("put")
    heard: list[Any] = []
    made = w.motu.put_template(
        name, IMAGE, setup=["echo made > /etc/made"], env={"WHO": "me"}, mem_mib=160, progress=heard.append
    )
    assert (made.name, made.version, made.definition.mem_mib) == (name, 1, 160)
    assert any(step.stage == "step" for step in heard)
    box = w.motu.create_sandbox(template=name)
    assert (box.mem_mib, box.template.name, box.template.version) == (160, name, 1)
    told = w.motu.exec(box.sandbox_id, "cat /etc/made; echo $WHO")
    assert told.stdout == "made\nme\n"
    w.motu.destroy_sandbox(box.sandbox_id)
    assert w.motu.remove_template(name).name == name


def get_template(w: World) -> None:
    assert w.motu.get_template(w.template).definition.environment == IMAGE


def list_templates(w: World) -> None:
    template = w.template
    assert template in [one.name for one in w.motu.list_templates().templates]


def build_template(w: World) -> None:
    assert w.motu.build_template(w.template).version == 1


def remove_template(w: World) -> None:
    name = w.fresh("gone")
    w.motu.put_template(name, IMAGE)
    assert w.motu.remove_template(name).name == name
    with pytest.raises(errors.NotFoundError):
        w.motu.get_template(name)


# Sandboxes.


def create_sandbox(w: World) -> None:
    name = w.fresh("made")
    made = w.motu.create_sandbox(IMAGE, sandbox_id=name, mem_mib=256, ttl_seconds=600, env={"A": "b"})
    assert (made.sandbox_id, made.mem_mib, made.vcpu_count, made.state) == (name, 256, 1, "running")
    w.motu.destroy_sandbox(name)


def destroy_sandbox(w: World) -> None:
    name = w.motu.create_sandbox(IMAGE).sandbox_id
    assert w.motu.destroy_sandbox(name).state == "destroyed"
    assert name not in [one.sandbox_id for one in w.motu.list_sandboxes().sandboxes]


def get_sandbox(w: World) -> None:
    assert w.motu.get_sandbox(w.box).environment == IMAGE


def list_sandboxes(w: World) -> None:
    box = w.box
    assert box in [one.sandbox_id for one in w.motu.list_sandboxes(all=True).sandboxes]


def stop_sandbox(w: World) -> None:
    name = w.motu.create_sandbox(IMAGE, keep=True).sandbox_id
    assert w.motu.stop_sandbox(name).state == "stopped"
    w.motu.destroy_sandbox(name)


def start_sandbox(w: World) -> None:
    name = w.motu.create_sandbox(IMAGE, keep=True).sandbox_id
    w.motu.stop_sandbox(name)
    assert w.motu.start_sandbox(name).state == "running"
    w.motu.destroy_sandbox(name)


def pause_sandbox(w: World) -> None:
    assert w.motu.pause_sandbox(w.box).state == "paused"
    w.motu.resume_sandbox(w.box)


def resume_sandbox(w: World) -> None:
    w.motu.pause_sandbox(w.box)
    assert w.motu.resume_sandbox(w.box).state == "running"


def keepalive(w: World) -> None:
    assert w.motu.keepalive(w.box, ttl_seconds=3600).ttl_seconds == 3600


def fork_sandbox(w: World) -> None:
    """Only virtual machines can; that others say so is part of the answer."""
    try:
        copies = w.motu.fork_sandbox(w.box, count=1)
    except errors.UnsupportedError as error:
        assert error.hint
        assert w.motu.get_sandbox(w.box).runtime != "qemu"
        return
    assert copies.count == 1
    w.motu.destroy_sandbox(copies.sandboxes[0].sandbox_id)


def commit_sandbox(w: World) -> None:
    box = w.motu.create_sandbox(IMAGE, keep=True).sandbox_id
    try:
        assert w.motu.commit_sandbox(box, name="mine:4").name == "mine:4"
    finally:
        w.motu.destroy_sandbox(box)


def reap_expired(w: World) -> None:
    assert w.motu.reap_expired().count >= 0


def plan(w: World) -> None:
    assert w.motu.plan(IMAGE)


def metrics(w: World) -> None:
    assert w.motu.metrics(w.box).memory_total_bytes > 0


def metrics_history(w: World) -> None:
    history = w.motu.metrics_history(w.box, range="2h")
    assert (history.sandbox_id, history.range) == (w.box, "2h")


def flush_metrics(w: World) -> None:
    flushed = w.motu.flush_metrics(w.box)
    assert len(flushed.points_10m) >= len(flushed.points_24h)


# Commands.


def run(w: World) -> None:
    result = w.motu.run({"environment": IMAGE}, sdk.types.ExecRequest(command=["sh", "-c", "echo out; exit 3"]))
    assert (result.stdout, result.exit_code) == ("out\n", 3)
    assert result.audit_id.startswith("run_")


def run_stream(w: World) -> None:
    request = {"command": ["cat"], "stdin": True, "timeout_seconds": 60}
    with w.motu.run_stream({"environment": IMAGE}, request) as stream:
        stream.write("through\n")
        stream.close_stdin()
        assert stream.read() == (b"through\n", b"")
        assert stream.sandbox.environment == IMAGE


def exec(w: World) -> None:
    result = w.motu.exec(w.box, "echo $A; echo err >&2", env={"A": "b"})
    assert (result.stdout, result.stderr, result.exit_code) == ("b\n", "err\n", 0)
    assert w.motu.exec(w.box, ["echo", "$A"]).stdout == "$A\n"


def exec_stream(w: World) -> None:
    with w.motu.exec_stream(w.box, ["tr", "a-z", "A-Z"], stdin=True) as stream:
        stream.write(b"typed in\n")
        stream.close_stdin()
        assert stream.read() == (b"TYPED IN\n", b"")
        assert stream.exited.exit_code == 0


def exec_background(w: World) -> None:
    started = w.motu.exec_background(w.box, ["true"], tag=w.fresh("tag"))
    assert started.pid > 0


def list_processes(w: World) -> None:
    tag = w.process("exec sleep 1000")
    assert tag in [one.tag for one in w.motu.list_processes(w.box).processes]
    w.motu.kill_process(w.box, tag, tree=True)


def attach(w: World) -> None:
    tag = w.process("read line; echo got $line", stdin=True)
    with w.motu.attach(w.box, tag) as stream:
        stream.write("a line\n")
        assert stream.read() == (b"got a line\n", b"")


def attach_output(w: World) -> None:
    tag = w.process("echo 0123456789; echo err >&2; exit 4")
    assert sdk_output(w.motu.attach_output(w.box, tag)) == (b"0123456789\n", 4)
    assert sdk_output(w.motu.attach_output(w.box, tag, stdout_from=7, stderr_from=0)) == (b"789\n", 4)


def signal_process(w: World) -> None:
    tag = w.process("trap 'exit 7' USR1; echo ready; while :; do sleep 0.1; done")
    with w.motu.attach_output(w.box, tag) as stream:
        seen_in(stream, b"ready")
        w.motu.signal_process(w.box, tag, "USR1")
        assert stream.wait().exit_code == 7


def kill_process(w: World) -> None:
    tag = w.process("exec sleep 1000")
    w.motu.kill_process(w.box, tag)
    with w.motu.attach_output(w.box, tag) as stream:
        assert stream.wait().signal is not None


def write_process(w: World) -> None:
    tag = w.process("read line; echo got $line; cat; exit 3", stdin=True)
    w.motu.write_process(w.box, tag, b"a line\n")
    w.motu.write_process(w.box, tag, b"and the rest", close=True)
    with w.motu.attach_output(w.box, tag) as stream:
        seen_in(stream, b"got a line\nand the rest")
        assert stream.wait().exit_code == 3


def resize_process(w: World) -> None:
    tag = w.process("read line; stty size", stdin=True, tty={"cols": 80, "rows": 24})
    w.motu.resize_process(w.box, tag, 132, 50)
    w.motu.write_process(w.box, tag, b"go\n")
    with w.motu.attach_output(w.box, tag) as stream:
        seen_in(stream, b"50 132")


# Files.


def write_file(w: World) -> None:
    path = f"/tmp/{w.fresh('deep')}/a.bin"
    entry = w.motu.write_file(w.box, path, bytes(range(256)) * 1000, mode="0600")
    assert (entry.size_bytes, entry.mode, entry.type) == (256_000, "0600", "file")
    assert w.motu.read_file(w.box, path) == bytes(range(256)) * 1000


def read_file(w: World) -> None:
    path = w.file("0123456789")
    assert w.motu.read_file(w.box, path, offset=2, length=3) == b"234"


def stat(w: World) -> None:
    assert w.motu.stat(w.box, w.file("four")).size_bytes == 4


def chmod(w: World) -> None:
    assert w.motu.chmod(w.box, w.file(), "0751").mode == "0751"


def glob(w: World) -> None:
    path = w.file()
    assert path in [one.path for one in w.motu.glob(w.box, "/tmp/file-*").entries]


def hash(w: World) -> None:
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert w.motu.hash(w.box, w.file("")).sha256 == empty


def list_files(w: World) -> None:
    path = w.file()
    assert path in [one.path for one in w.motu.list_files(w.box, "/tmp", depth=1).entries]


def mkdir(w: World) -> None:
    assert w.motu.mkdir(w.box, f"/tmp/{w.fresh('dir')}", mode="0700").type == "directory"


def move_file(w: World) -> None:
    """One of the names is not UTF-8."""
    old, new = w.file("moved"), f"/tmp/{w.fresh('x')}".encode() + b"\xff"
    w.motu.move_file(w.box, old, new)
    assert w.motu.read_file(w.box, new) == b"moved"


def remove_file(w: World) -> None:
    path = w.file()
    assert w.motu.remove_file(w.box, path) is None
    with pytest.raises(errors.NotFoundError):
        w.motu.stat(w.box, path)


def write_tree(w: World) -> None:
    place = f"/tmp/{w.fresh('tree')}"
    assert w.motu.write_tree(w.box, place, tar_of("a.txt", b"in the tar")).entries == 1
    assert w.motu.read_file(w.box, f"{place}/a.txt") == b"in the tar"


def read_tree(w: World) -> None:
    place = f"/tmp/{w.fresh('tree')}"
    w.motu.write_file(w.box, f"{place}/a.txt", b"out")
    with tarfile.open(fileobj=io.BytesIO(w.motu.read_tree(w.box, place))) as archive:
        assert any(name.endswith("a.txt") for name in archive.getnames())


def watch(w: World) -> None:
    place = f"/tmp/{w.fresh('watched')}"
    w.motu.mkdir(w.box, place)
    with w.motu.watch(w.box, place) as changes:
        w.motu.write_file(w.box, f"{place}/a", b"x")
        assert next(iter(changes)).path.startswith(place)


# Ports.


def list_ports(w: World) -> None:
    tag = w.process("exec nc -l -p 7001 -e cat")
    until(lambda: 7001 in [one.port for one in w.motu.list_ports(w.box).ports])
    w.motu.kill_process(w.box, tag, tree=True)


def dial(w: World) -> None:
    w.process("exec nc -l -p 7002 -e cat")
    until(lambda: 7002 in [one.port for one in w.motu.list_ports(w.box).ports])
    with w.motu.dial(w.box, 7002) as connection:
        connection.write(b"echo")
        assert connection.read(timeout_seconds=60) == b"echo"


def dial_unix(w: World) -> None:
    """busybox has no server of Unix sockets, so that the refusal comes from the machine must do."""
    with pytest.raises(errors.NotFoundError):
        w.motu.dial_unix(w.box, "/tmp/no.sock")


# Policies, secrets and calls.


def list_policies(w: World) -> None:
    assert "none" in [one.name for one in w.motu.list_policies().policies]


def get_policy(w: World) -> None:
    assert w.motu.get_policy("none").allow == []


def check_policy(w: World) -> None:
    text = 'version = 1\n[[allow]]\ncapability = "api"\nhosts = ["api.example.com"]\nports = [443]\n'
    assert w.motu.check_policy(text).allow[0].hosts == ["api.example.com"]


def explain_policy(w: World) -> None:
    assert not w.motu.explain_policy("none", "example.com", 443).allowed


def set_policy(w: World) -> None:
    with w.machine(policy="public") as box:
        assert w.motu.set_policy(box, "packages").policy.name == "packages"


def read_decisions(w: World) -> None:
    with w.machine(policy="packages") as box:
        w.motu.exec(box, "nslookup nowhere.invalid; nc -w 2 192.0.2.1 80 </dev/null; true", timeout_seconds=60)
        assert isinstance(first(w.motu.read_decisions(box)), dict)


def read_events(w: World) -> None:
    with w.machine() as box:
        line = first(w.motu.read_events(id=box, kind="sandbox.created"))
        assert line["id"] == box and line["sequence"] > 0


def create_key(w: World) -> None:
    made = w.motu.create_key(project="py", scopes=["read"], expires_seconds=60)
    assert made.key.startswith(f"motu_{made.key_id}_")


def list_keys(w: World) -> None:
    made = w.motu.create_key(name="py list")
    found = next(one for one in w.motu.list_keys().keys if one.key_id == made.key_id)
    assert found.name == "py list"


def revoke_key(w: World) -> None:
    made = w.motu.create_key()
    assert w.motu.revoke_key(made.key_id).revoked_at


def set_secret(w: World) -> None:
    assert w.motu.set_secret("py-a", value="open-sesame").source_kind


def list_secrets(w: World) -> None:
    w.motu.set_secret("py-b", value="open-sesame")
    assert "py-b" in [one.name for one in w.motu.list_secrets().secrets]


def remove_secret(w: World) -> None:
    w.motu.set_secret("py-c", value="open-sesame")
    assert w.motu.remove_secret("py-c").name == "py-c"


def call(w: World) -> None:
    answer = w.motu.call(
        image=IMAGE,
        files=[sdk.types.CallFile(path="/work/a.txt", content="hello")],
        command=["cat", "/work/a.txt"],
        state={"retention": "destroy"},
    )
    assert (answer.exit_code, answer.stdout, answer.policy.name) == (0, "hello", "none")


def dry_run_call(w: World) -> None:
    plan = w.motu.dry_run_call(image=IMAGE, command=["true"], state={"retention": "destroy"})
    assert plan.allowed, plan.checks
    plan = w.motu.dry_run_call(image="nobody/allows", command=["true"], state={"retention": "destroy"})
    refused = [check for check in plan.checks if not check.allowed]
    assert not plan.allowed and refused[0].rule == "call.images", plan


# The audit log.


def list_audit(w: World) -> None:
    w.motu.exec(w.box, ["true"])
    entries = w.motu.list_audit(limit=5, verb="exec").entries
    assert {one.verb for one in entries} == {"exec"}


def get_audit(w: World) -> None:
    audit_id = w.motu.exec(w.box, ["true"]).audit_id
    assert w.motu.get_audit(audit_id).entries[0].id == audit_id


def audit_receipt(w: World) -> None:
    audit_id = w.motu.exec(w.box, ["true"]).audit_id
    assert w.motu.audit_receipt(audit_id).entry.id == audit_id


def audit_key(w: World) -> None:
    assert w.motu.audit_key().public_key


def verify_audit(w: World) -> None:
    assert w.motu.verify_audit().ok


def export_audit(w: World) -> None:
    assert isinstance(first(w.motu.export_audit()), dict)


def follow_audit(w: World) -> None:
    w.motu.exec(w.box, ["true"])
    assert "verb" in first(w.motu.follow_audit(tail=1))


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


# Terminals.


def open_terminal(w: World) -> None:
    name = w.fresh("opened")
    assert w.motu.open_terminal(name, sandbox_id=w.box, command=["sh"]).created
    w.motu.terminate_terminal(name)


def list_terminals(w: World) -> None:
    name = w.terminal
    assert name in [one.session_id for one in w.motu.list_terminals().sessions]


def get_terminal(w: World) -> None:
    assert w.motu.get_terminal(w.terminal).alive


def configure_terminal(w: World) -> None:
    size = sdk.types.TtySize(cols=90, rows=30)
    after = w.motu.configure_terminal(w.terminal, size=size, description="a test")
    assert (after.cols, after.rows, after.description) == (90, 30, "a test")


def run_in_terminal(w: World) -> None:
    assert "42" in w.motu.run_in_terminal(w.terminal, "echo $((6 * 7))", timeout=60).output


def send_to_terminal(w: World) -> None:
    w.motu.send_to_terminal(w.terminal, "echo $((40 + 3))\n")
    assert w.motu.expect_in_terminal(w.terminal, ["43"], timeout=60).found.text == "43"


def expect_in_terminal(w: World) -> None:
    w.motu.send_to_terminal(w.terminal, "echo $((40 + 4))\n")
    found = w.motu.expect_in_terminal(w.terminal, ["never", "4(4)"], timeout=60).found
    assert (found.index, found.groups[-1]) == (1, "4")


def expect_terminal_prompt(w: World) -> None:
    w.motu.run_in_terminal(w.terminal, "true", timeout=60)
    assert w.motu.expect_terminal_prompt(w.terminal, timeout=60).status in ("ready", "unknown", "running")


def poll_terminal(w: World) -> None:
    assert w.motu.poll_terminal(w.terminal, timeout=0).timed_out in (True, False)


def send_terminal_password(w: World) -> None:
    w.motu.run_in_terminal(w.terminal, "stty -echo; read secret; stty echo; echo ${#secret}", timeout=10)
    answer = w.motu.send_terminal_password(w.terminal, "open-sesame", timeout=10)
    assert "open-sesame" not in repr(answer)
    assert w.motu.expect_in_terminal(w.terminal, ["11"], timeout=60).found


def signal_terminal(w: World) -> None:
    name = w.fresh("sleeper")
    w.motu.open_terminal(name, sandbox_id=w.box, command=["sh"])
    w.motu.run_in_terminal(name, "sleep 1000", timeout=0.5)
    try:
        assert w.motu.signal_terminal(name, "INT", timeout=60).end
    except errors.UnsupportedError:
        # gVisor does not say which process is in front.
        assert w.motu.get_sandbox(w.box).runtime == "gvisor"
    w.motu.terminate_terminal(name)


def terminal_screen(w: World) -> None:
    w.motu.run_in_terminal(w.terminal, "echo $((40 + 5))", timeout=60)
    assert "45" in w.motu.terminal_screen(w.terminal, format="text").screen


def terminal_scrollback(w: World) -> None:
    assert w.motu.terminal_scrollback(w.terminal, lines=10).lines >= 0


def clear_terminal_scrollback(w: World) -> None:
    assert w.motu.clear_terminal_scrollback(w.terminal).session_id == w.terminal


def terminal_transcript(w: World) -> None:
    w.motu.run_in_terminal(w.terminal, "echo $((40 + 6))", timeout=60)
    assert "46" in w.motu.terminal_transcript(w.terminal, from_=0, max_bytes=65536).text


def terminal_recording(w: World) -> None:
    assert w.motu.terminal_recording(w.terminal).startswith(b"{")


def attach_terminal(w: World) -> None:
    with w.motu.attach_terminal(w.terminal, cols=90, rows=30) as stream:
        stream.write("echo $((40 + 7))\n")
        seen_in(stream, b"47")


def attach_terminal_output(w: World) -> None:
    with w.motu.attach_terminal_output(w.terminal) as stream:
        w.motu.send_to_terminal(w.terminal, "echo $((40 + 8))\n")
        seen_in(stream, b"48")


def seen_in(stream: Any, text: bytes) -> None:
    seen = b""
    for event in stream:
        seen += event.data if isinstance(event, sdk.Output) else b""
        if text in seen:
            return
    raise AssertionError(seen)


def terminate_terminal(w: World) -> None:
    name = w.fresh("ended")
    w.motu.open_terminal(name, sandbox_id=w.box, command=["sh"])
    assert w.motu.terminate_terminal(name).terminated


#: The table: a case for each method, under its own name.
CASES: dict[str, Callable[[World], None]] = {
    name: case for name, case in list(globals().items()) if name in set(OPERATIONS.values())
}


@pytest.fixture(scope="module", params=["sync", "async"])
def world(
    request: pytest.FixtureRequest, motu: Motu, home: Path, fresh: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    tmp = tmp_path_factory.mktemp(str(request.param))
    if request.param == "sync":
        yield World(motu, fresh, tmp)
        return
    loop = Loop()
    try:
        with Bridge(loop, AsyncMotu(home)) as bridge:
            yield World(bridge, fresh, tmp)
    finally:
        loop.close()


def test_no_verb_is_left_out() -> None:
    assert sorted(set(OPERATIONS.values()) - set(CASES)) == []


def test_no_operation_is_left_out(motu: Motu) -> None:
    """The daemon's own document has nothing that this package lacks."""
    document = motu.openapi()
    served = {one["operationId"] for methods in document["paths"].values() for one in methods.values()}
    assert served == set(OPERATIONS)


@pytest.mark.parametrize("name", sorted(CASES))
def test_verb(world: World, name: str) -> None:
    CASES[name](world)
