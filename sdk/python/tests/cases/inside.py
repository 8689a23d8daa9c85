"""Commands, files, ports, policies, secrets, calls and the audit log."""

from __future__ import annotations

import io
import tarfile

import pytest
from cases.world import World, first, sdk_output, seen_in, tar_of
from conftest import IMAGE, until

import motu as sdk
from motu import errors

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
