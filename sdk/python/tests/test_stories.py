"""Machines as people use them, on whatever runtime this state directory is set to."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import logging
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import IMAGE

import motu as sdk
from motu import AsyncSandbox, Motu, NetworkPolicy, Sandbox, errors


def test_a_tool_call_as_the_contract_writes_it(home: Path, runtime: str) -> None:
    """The client is found by `MOTU_HOME`, as it is for people."""
    with Sandbox.create(image=IMAGE, network=NetworkPolicy.deny_by_default(), ttl_seconds=600) as sandbox:
        assert sandbox.info.runtime == runtime
        sandbox.files.write("/work/main.sh", "echo hello; echo err >&2; exit 3")
        result = sandbox.commands.run(["sh", "/work/main.sh"], timeout_seconds=60, max_output_bytes=1000)
        assert (result.exit_code, result.stdout, result.stderr) == (3, "hello\n", "err\n")
        assert result.audit_id is not None and result.audit_id.startswith("run_")
        assert sandbox.motu.get_audit(result.audit_id).entries[0].facts.exit_code == 3
        cut = sandbox.commands.run("head -c 5000 /dev/zero", timeout_seconds=60, max_output_bytes=1000)
        assert cut.truncated and len(cut.stdout) <= 1000
        late = sandbox.commands.run("echo before; sleep 1000", timeout_seconds=2)
        assert late.timed_out and late.stdout == "before\n"
    with Motu(home) as motu:
        assert sandbox.id not in [one.sandbox_id for one in motu.list_sandboxes().sandboxes]


def test_the_same_without_waiting(home: Path, runtime: str) -> None:
    async def story() -> None:
        async with await AsyncSandbox.create(image=IMAGE, ttl_seconds=600) as sandbox:
            assert sandbox.info.runtime == runtime
            await sandbox.files.write("/work/a.txt", "hello")
            runs = [sandbox.commands.run(f"cat /work/a.txt; echo {number}") for number in range(5)]
            results = await asyncio.gather(*runs)
            assert [one.stdout for one in results] == [f"hello{number}\n" for number in range(5)]
            async with await sandbox.commands.stream(["tr", "a-z", "A-Z"], stdin=True) as stream:
                await stream.write("typed in\n")
                await stream.close_stdin()
                assert await stream.read() == (b"TYPED IN\n", b"")

    asyncio.run(story())


def test_files_have_names_and_contents(motu: Motu, runtime: str) -> None:
    with Sandbox.create(IMAGE, motu=motu) as box:
        files = box.files
        files.write("/work/a/b.txt", "text")
        files.write("/work/a/c.bin", b"\x00\xff", mode="0600")
        assert [one.name for one in files.list("/work/a")] == ["b.txt", "c.bin"]
        assert files.read("/work/a/c.bin") == b"\x00\xff"
        assert files.stat("/work/a/c.bin").mode == "0600"
        files.mkdir("/work/d")
        files.move("/work/a/b.txt", "/work/d/b.txt")
        assert files.read_text("/work/d/b.txt") == "text"
        assert not files.exists("/work/a/b.txt")
        files.remove("/work/d", recursive=True)
        assert not files.exists("/work/d")


def test_processes_run_on_by_themselves(motu: Motu, runtime: str) -> None:
    with Sandbox.create(IMAGE, motu=motu) as box:
        process = box.commands.start("for i in 1 2 3; do echo $i; done; exit 9", tag="count")
        assert process.wait().exit_code == 9
        with process.stream() as stream:
            assert stream.read() == (b"1\n2\n3\n", b"")
        sleeper = box.commands.start(["sleep", "1000"])
        assert sleeper.pid in [one.pid for one in box.commands.list()]
        sleeper.kill()
        assert sleeper.wait().signal is not None


def test_a_terminal_in_a_stream(motu: Motu, runtime: str) -> None:
    with Sandbox.create(IMAGE, motu=motu) as box:
        with box.commands.stream(["sh"], stdin=True, tty=sdk.types.TtySize(cols=80, rows=24)) as stream:
            stream.resize(100, 40)
            stream.write("stty size; exit\n")
            assert b"40 100" in stream.read()[0]


def test_large_input_and_output_are_whole(motu: Motu, runtime: str) -> None:
    """More than a frame, a pipe and every buffer on the way hold, in both directions at once."""
    data = bytes(range(256)) * 16_384
    with Sandbox.create(IMAGE, motu=motu) as box:
        with box.commands.stream(["cat"], stdin=True, timeout_seconds=300) as stream:
            def feed() -> None:
                stream.write(data)
                stream.close_stdin()

            feeder = threading.Thread(target=feed)
            feeder.start()
            stdout, _ = stream.read()
            feeder.join()
        assert stdout == data


def test_pausing_and_copying(motu: Motu, runtime: str) -> None:
    with Sandbox.create(IMAGE, motu=motu) as box:
        assert box.pause().state == "paused"
        assert box.resume().state == "running"
        assert box.keepalive(1200).ttl_seconds == 1200
        assert box.refresh().state == "running"
        if runtime != "qemu":
            with pytest.raises(errors.UnsupportedError):
                box.fork()
            return
        box.files.write("/work/a.txt", "before the fork")
        (copy,) = box.fork()
        with copy:
            assert copy.files.read_text("/work/a.txt") == "before the fork"
            assert copy.id != box.id


def test_machines_that_stay(motu: Motu, runtime: str) -> None:
    vm_id = motu.create_vm(IMAGE).sandbox_id
    assert motu.status_vm(vm_id).state == "running"
    info = motu.network_info_vm(vm_id)
    assert (info.network, info.network_enabled) == ("off", False)
    assert motu.stop_vm(vm_id).state == "stopped"
    assert motu.start_vm(vm_id).state == "running"
    assert motu.exec_vm(vm_id, command="echo once", timeout_seconds=60).stdout == "once\n"
    assert vm_id not in [one.sandbox_id for one in motu.list_sandboxes(all=True).sandboxes if one.state == "running"]
    other = motu.create_vm(IMAGE, mem_mib=512).sandbox_id
    assert motu.delete_vm(other).state == "destroyed"


def test_a_workspace_from_seed_to_end(motu: Motu, runtime: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    workspace = motu.create_workspace(IMAGE, seed_path=tmp_path, name="story")
    ws = workspace.workspace_id
    motu.write_workspace_file(ws, "a.txt", text="two\n")
    motu.create_snapshot(ws, "two")
    assert motu.exec_workspace(ws, command="cat a.txt; rm a.txt").stdout == "two\n"
    motu.reset_workspace(ws, snapshot="two")
    assert motu.read_workspace_file(ws, "a.txt").content == "two\n"
    motu.reset_workspace(ws)
    assert motu.read_workspace_file(ws, "a.txt").content == "one\n"
    assert not motu.diff_workspace(ws).changed
    motu.delete_workspace(ws)


def test_a_published_port_answers(motu: Motu, runtime: str) -> None:
    ws = motu.create_workspace(IMAGE, network_policy="egress+published-ports").workspace_id
    service = motu.start_service(
        ws,
        "echo",
        command="exec nc -ll -p 7000 -e cat",
        readiness={"type": "tcp", "port": 7000},
        ready_timeout_seconds=120,
        published_ports=[7000],
    )
    port = service.published_ports[0]
    with socket.create_connection((port.host, port.host_port), timeout=60) as connection:
        connection.sendall(b"echo")
        assert connection.recv(4) == b"echo"
    motu.delete_workspace(ws)


def test_secrets_are_shown_nowhere(motu: Motu, runtime: str, caplog: pytest.LogCaptureFixture) -> None:
    """Neither in answers, nor in errors with their causes, nor in what libraries log."""
    value = "open-sesame-7391"
    caplog.set_level(logging.DEBUG)
    made = motu.create_workspace(IMAGE, secrets={"TOKEN": value})
    said: list[Any] = [made, motu.status_workspace(made.workspace_id), motu]
    result = motu.exec_workspace(made.workspace_id, command="echo $TOKEN", secret_env=["TOKEN"])
    said += [result, motu.logs_workspace(made.workspace_id), motu.list_audit(limit=50)]
    motu.set_secret("py-story", value=value)
    said.append(motu.list_secrets())
    with pytest.raises(errors.InvalidError) as caught:
        motu.create_workspace(IMAGE, secrets=[{"name": "not a name!", "value": value}])
    cause: BaseException | None = caught.value
    while cause is not None:
        said.append(cause)
        cause = cause.__cause__ or cause.__context__
    motu.remove_secret("py-story")
    motu.delete_workspace(made.workspace_id)
    for one in said:
        assert value not in repr(one) and value not in str(one)
    assert value not in caplog.text


def test_a_bound_secret_is_a_placeholder_in_the_machine(motu: Motu, runtime: str) -> None:
    value = "open-sesame-8264"
    motu.set_secret("py-bound", value=value, hosts=["api.example.com"])
    with Sandbox.create(
        IMAGE, network=NetworkPolicy.named("public"), secret_refs={"KEY": "py-bound"}, motu=motu
    ) as box:
        shown = box.commands.run("echo $KEY", timeout_seconds=60).stdout.strip()
        assert shown and value not in shown
        assert value not in repr(box.refresh())
    motu.remove_secret("py-bound")


def test_a_state_directory_may_have_a_long_path(home: Path, tmp_path: Path) -> None:
    """Longer than the address of a socket may be."""
    place = tmp_path / ("long" * 25) / ("name" * 25)
    with Motu(place) as motu:
        assert motu.version().home == str(place)
        assert motu.list_sandboxes().count == 0
        subprocess.run([motu.create_server().command[0], "--home", place, "serve", "--stop"], check=True)


def test_a_closed_stream_stays_closed(motu: Motu, runtime: str) -> None:
    with Sandbox.create(IMAGE, motu=motu) as box:
        box.commands.start(["sleep", "1000"], tag="sleeper")
        with motu.attach_output(box.id, "sleeper") as stream:
            assert isinstance(next(stream), sdk.types.Started)
        assert list(stream) == []
        assert [one.exited for one in box.commands.list() if one.tag == "sleeper"] == [None]


def test_threads_share_a_client(home: Path, runtime: str) -> None:
    with Motu(home) as motu, concurrent.futures.ThreadPoolExecutor(8) as pool:
        with Sandbox.create(IMAGE, motu=motu) as box:
            results = pool.map(lambda number: box.commands.run(["echo", str(number)], 120).stdout, range(24))
            assert list(results) == [f"{number}\n" for number in range(24)]


def test_the_mcp_server_serves(motu: Motu) -> None:
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    served = subprocess.run(
        motu.create_server("vm-run").command, input=json.dumps(hello) + "\n", capture_output=True, text=True, timeout=120
    )
    assert json.loads(served.stdout.splitlines()[0])["result"]["serverInfo"]["name"]


def test_files_have_the_rights_of_a_user(motu: Motu) -> None:
    with Sandbox.create(IMAGE, motu=motu) as box:
        box.commands.run("mkdir -p /srv/open /srv/closed; chmod 777 /srv/open; echo x > /srv/closed/f; chmod 600 /srv/closed/f", 60)
        made = box.files.write("/srv/open/mine", "text", user="1000:1000")
        assert (made.uid, made.gid) == (1000, 1000)
        assert box.files.read_text("/srv/open/mine", user="1000") == "text"
        refused: list[Callable[[], object]] = [
            lambda: box.files.write("/srv/closed/new", "text", user="1000"),
            lambda: box.files.read("/srv/closed/f", user="1000"),
            lambda: box.files.remove("/srv/closed/f", user="1000"),
            lambda: box.files.mkdir("/srv/closed/d", user="1000"),
            lambda: box.files.move("/srv/closed/f", "/srv/open/f", user="1000"),
            lambda: motu.chmod(box.id, "/srv/closed/f", "0644", user="1000"),
            lambda: motu.hash(box.id, "/srv/closed/f", user="1000"),
        ]
        for call in refused:
            with pytest.raises(PermissionError) as caught:
                call()
            assert isinstance(caught.value, errors.PathDeniedError)
        # Without a user it is root's business.
        assert box.files.read_text("/srv/closed/f") == "x\n"


def test_failures_that_a_program_tells_apart(motu: Motu) -> None:
    with Sandbox.create(IMAGE, motu=motu) as box:
        with pytest.raises(FileNotFoundError):
            box.files.read("/etc/none")
        with pytest.raises(IsADirectoryError):
            box.files.read("/etc")
        with pytest.raises(NotADirectoryError):
            box.files.read("/etc/passwd/x")
        with pytest.raises(errors.NoSuchUserError):
            box.files.read("/etc/passwd", user="nobody-of-this-name")
        with pytest.raises(errors.NoSuchUserError):
            box.commands.run("true", user="nobody-of-this-name")
        assert not box.files.exists("/etc/passwd/x")
        missing = box.commands.run(["no-such-program"], 60)
        assert (missing.not_started, missing.exit_code) == ("no_such_program", 127)
        assert box.commands.run("exit 127", 60).not_started is None
        box.files.write("/tmp/text", "no program", mode="0644")  # and no permission to run it
        assert box.commands.run(["/tmp/text"], 60).not_started == "not_executable"
        assert box.commands.run("true", 60, workdir="/etc/none").not_started == "no_such_directory"


def test_input_is_read_to_its_end(motu: Motu) -> None:
    with Sandbox.create(IMAGE, motu=motu) as box:
        assert box.commands.run(["cat"], 60, input="text\n").stdout == "text\n"
        assert box.commands.run("wc -c", 60, input=b"\x00\xff" * 2_000_000).stdout.strip() == "4000000"
        assert box.commands.run(["cat"], 60).stdout == ""
        # One that reads nothing ends all the same.
        assert box.commands.run(["true"], 60, input="x" * 1_000_000).exit_code == 0
        alone = box.commands.start(["cat"], input="alone")
        with alone.stream() as stream:
            assert stream.read()[0] == b"alone"
        with pytest.raises(errors.InvalidError):
            motu.exec_stream(box.id, "cat", stdin=True, input="x").wait()


def test_arguments_as_long_as_linux_takes_them(motu: Motu) -> None:
    words = ["w" * 1000] * 1900
    with Sandbox.create(IMAGE, motu=motu) as box:
        counted = ["sh", "-c", "echo $#; printf %s \"$V\" | wc -c", "sh", *words]
        ran = box.commands.run(counted, 120, env={"V": "v" * 100_000})
        assert ran.stdout.split() == ["1900", "100000"], ran.stderr
        with motu.exec_stream(box.id, counted, timeout_seconds=120) as stream:
            assert stream.read()[0].split() == [b"1900", b"0"]
        for too_long in (["echo", "x" * 131_072], ["echo", *words, *words]):
            with pytest.raises(errors.LimitError) as caught:
                box.commands.run(too_long)
            assert "argument_bytes" in caught.value.message or "argv_bytes" in caught.value.message
        # Far more than a request may hold: the reason comes over a WebSocket, too.
        with pytest.raises(errors.LimitError):
            motu.exec_stream(box.id, ["echo", *["x" * 100_000] * 180]).wait()


def test_answers_are_found_by_index(motu: Motu, tmp_path: Path) -> None:
    (tmp_path / "seed").mkdir()
    (tmp_path / "seed/a.txt").write_text("one\n")
    made = motu.create_workspace(IMAGE, seed_path=tmp_path / "seed", name="by index")
    try:
        workspace = made["workspace_id"]
        assert made["name"] == made.name == "by index" and made["vm_id"] == workspace
        assert made.get("no such field") is None and "state" in made
        with pytest.raises(KeyError):
            made["no such field"]
        ran = motu.exec_workspace(workspace, command="echo two > a.txt", timeout_seconds=60)
        assert ran["exit_code"] == 0 and ran["execution_mode"] == "guest_vsock"
        diff = motu.diff_workspace(workspace)
        assert "+two" in diff["text_patch"] and diff["summary"]["modified"] == 1
        kept = motu.create_snapshot(workspace, "kept")
        assert kept["snapshot"]["snapshot_name"] == "kept"
        # Directories above the place of an export are made.
        target = tmp_path / "new/deep/a.txt"
        motu.export_workspace(workspace, "a.txt", output_path=target)
        assert target.read_text() == "two\n"
        reset = motu.reset_workspace(workspace, snapshot="kept")
        assert reset["workspace_reset"]["snapshot_name"] == "kept" and reset["reset_count"] == 1
        assert motu.delete_snapshot(workspace, "kept")["deleted"] is True
        shell = motu.open_shell(workspace)
        assert motu.close_shell(workspace, shell["shell_id"])["closed"] is True
        listed = motu.list_workspaces()["workspaces"]
        assert workspace in [one["workspace_id"] for one in listed]
    finally:
        assert motu.delete_workspace(made.workspace_id)["deleted"] is True
