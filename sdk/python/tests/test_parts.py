"""What needs no daemon: frames, JSON, errors, names, and what must never be shown."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

import motu
from motu import _daemon, _frames, _wire, errors, types
from motu._frames import Decoder, Output, Position

ROOT = Path(__file__).resolve().parents[3]


def test_there_is_a_class_for_every_kind_of_the_document() -> None:
    document = json.loads((ROOT / "docs/openapi.json").read_text())
    kinds = set(document["components"]["schemas"]["ErrorKind"]["enum"])
    assert kinds == set(errors.BY_KIND)
    assert kinds == set(re.findall(r"\| `(\w+)` \|", (ROOT / "docs/exit-codes.md").read_text()))


@pytest.mark.parametrize("kind", sorted(errors.BY_KIND))
def test_an_error_has_the_class_of_its_kind(kind: str) -> None:
    wire = {"error": {"kind": kind, "message": "it failed", "hint": "try less", "details": {"audit_id": "run_1"}}}
    error = errors.from_wire(wire)
    assert type(error) is errors.BY_KIND[kind]
    assert isinstance(error, motu.MotuError)
    assert (error.kind, error.message, error.hint, error.audit_id) == (kind, "it failed", "try less", "run_1")
    assert str(error) == "it failed (try less)"


def test_a_hint_is_said_in_the_words_of_this_library() -> None:
    steps = [
        {"type": "verb", "verb": "stop_service", "arguments": {"id": "ws", "name": "web"}},
        {"type": "words", "text": " ends one; or give "},
        {"type": "field", "field": "runtime", "value": "qemu", "verb": "create_workspace"},
        {"type": "words", "text": ", "},
        {"type": "host", "command": "ulimit -n 1"},
        {"type": "words", "text": " or "},
        {"type": "setting", "key": "max_sandboxes"},
    ]
    error = errors.from_wire({"kind": "limit", "message": "full", "hint": "`POST /v1/…`", "next": steps})
    assert error.hint == (
        "`stop_service()` (id='ws', name='web') ends one; or give `runtime='qemu'` of `create_workspace()`, "
        "`ulimit -n 1` (for the operator, on the host) or max_sandboxes in the operator's config.toml"
    )
    assert error.next == steps


def test_a_step_of_the_future_leaves_the_words_of_the_daemon() -> None:
    error = errors.from_wire({"kind": "limit", "message": "full", "hint": "sing", "next": [{"type": "song"}]})
    assert error.hint == "sing"


@pytest.mark.parametrize("wire", [None, [], "text", {}, {"error": 3}, {"error": {"kind": "invalid"}}])
def test_what_is_no_error_is_told_as_one(wire: object) -> None:
    assert isinstance(errors.from_wire(wire), motu.TransportError)


def test_a_kind_of_the_future_is_an_error_still() -> None:
    assert type(errors.from_wire({"kind": "moon", "message": "full"})) is motu.MotuError


def test_frames_come_back_whatever_pieces_they_arrive_in() -> None:
    frames = [(0, b"{}"), (1, b""), (1, b"x" * 70_000), (2, b"err")]
    whole = b"".join(_frames.frame(kind, payload) for kind, payload in frames)
    for size in (1, 2, 7, 4096, len(whole)):
        decoder, found = Decoder(), []
        for start in range(0, len(whole), size):
            decoder.push(whole[start : start + size])
            while (frame := decoder.next()) is not None:
                found.append(frame)
        assert found == frames


@pytest.mark.parametrize("head", [b"\x03\x00\x00\x00\x00", b"\x01\x00\x10\x00\x01", b"\xff\xff\xff\xff\xff"])
def test_frames_that_cannot_be_are_refused(head: bytes) -> None:
    decoder = Decoder()
    decoder.push(head)
    with pytest.raises(motu.TransportError):
        decoder.next()


def message(value: Any) -> bytes:
    return json.dumps(value).encode()


def test_a_position_is_the_next_byte_of_each_channel() -> None:
    position = Position()
    started = position.take(0, message({"type": "started", "pid": 2, "stdout_from": 10, "stderr_from": 0}))
    assert isinstance(started, types.Started)
    assert position.take(1, b"abc") == Output("stdout", b"abc", 10)
    assert position.take(2, b"e") == Output("stderr", b"e", 0)
    gap = position.take(0, message({"type": "gap", "channel": "stdout", "from": 13, "to": 20}))
    assert isinstance(gap, types.Gap) and (gap.from_, gap.to) == (13, 20)
    assert (position.stdout, position.stderr) == (20, 1)
    # The same process again, after a reconnection, is no news.
    assert position.take(0, message({"type": "started", "pid": 2, "stdout_from": 20, "stderr_from": 1})) is None
    assert position.take(0, message({"type": "from the future"})) is None


@pytest.mark.parametrize("payload", [b"", b"[]", b"{}", b"\xff", b'{"type": "started"}', b'{"type": "gap"}'])
def test_a_message_that_cannot_be_read_is_an_error(payload: bytes) -> None:
    with pytest.raises(motu.TransportError):
        Position().take(0, payload)


def test_an_error_in_a_stream_is_raised() -> None:
    with pytest.raises(motu.LimitError):
        Position().take(0, message({"type": "error", "error": {"kind": "limit", "message": "too much"}}))


def test_answers_of_a_newer_daemon_are_read() -> None:
    value = {"api_version": "1", "home": "/h", "pid": 1, "version": "9", "colour": "blue"}
    assert _wire.decode(types.Version, value).version == "9"


@pytest.mark.parametrize("value", [None, 3, [], {}, {"api_version": "1"}])
def test_answers_that_lack_something_are_refused(value: object) -> None:
    with pytest.raises(motu.TransportError):
        _wire.decode(types.Version, value)


def test_classes_are_json_and_back() -> None:
    probe = types.ReadinessHttp(port=80, path="/up")
    assert _wire.encode(probe) == {"type": "http", "port": 80, "path": "/up"}
    gap = types.Gap(channel="stdout", from_=1, to=2)
    assert motu.to_dict(gap) == {"channel": "stdout", "from": 1, "to": 2}
    assert _wire.decode(types.Gap, motu.to_dict(gap)) == gap


def test_short_forms_are_the_long_ones() -> None:
    assert _wire.command("a b") == {"command": ["a b"], "mode": "shell"}
    assert _wire.command(("a", "b")) == {"command": ["a", "b"], "mode": "argv"}
    assert _wire.secret_env({"A": "B", "C": None}) == [{"secret": "A", "variable": "B"}, {"secret": "C"}]
    assert _wire.secret_env(["A", types.SecretEnv(secret="B")]) == [{"secret": "A"}, {"secret": "B"}]
    assert _wire.secret_refs({"A": "b", "C": types.SecretRef(ref="d")}) == {"A": {"ref": "b"}, "C": {"ref": "d"}}
    assert _wire.published_ports([80, "90:80"]) == [{"guest_port": 80}, {"guest_port": 80, "host_port": 90}]
    assert _wire.secrets([types.SecretSource(name="A", path="x")]) == [{"name": "A", "path": os.path.abspath("x")}]
    with pytest.raises(motu.InvalidError):
        _wire.published_ports(["80:"])


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_names_that_would_change_the_address_are_refused(name: str) -> None:
    with pytest.raises(motu.InvalidError):
        _wire.segment(name)


def test_names_stay_one_segment() -> None:
    assert _wire.segment("a/../b?c#d") == "a%2F..%2Fb%3Fc%23d"


def test_secrets_are_not_in_a_repr() -> None:
    for value in (
        types.SecretSource(name="A", value="open-sesame"),
        types.SetSecret(value="open-sesame"),
        types.TerminalPassword(password="open-sesame"),
        types.CreateWorkspace(environment="e", secrets=[types.SecretSource(name="A", value="open-sesame")]),
        motu.Motu("/nowhere"),
    ):
        assert "open-sesame" not in repr(value)
        assert "open-sesame" not in str(value)


def test_the_home_is_where_the_command_line_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTU_HOME", "/here")
    assert _daemon.Daemon().socket == Path("/here/daemon.sock")
    monkeypatch.delenv("MOTU_HOME")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert _daemon.usual_home() == "/var/lib/motu"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert _daemon.usual_home() == "/state/motu"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert _daemon.usual_home() == "/home/me/.local/state/motu"


def test_a_daemon_keeps_only_some_variables() -> None:
    assert _daemon.kept("PATH") and _daemon.kept("MOTU_X") and _daemon.kept("https_proxy")
    assert not _daemon.kept("AWS_SECRET_ACCESS_KEY")


def test_without_a_program_the_error_says_what_to_do(tmp_path: Path) -> None:
    with motu.Motu(tmp_path / "home", binary=tmp_path / "no-such-program") as client:
        with pytest.raises(motu.UnavailableError) as caught:
            client.version()
    assert "MOTU_BINARY" in str(caught.value)


def test_a_program_is_found_from_any_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin/motu"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MOTU_BINARY", "bin/motu")
    assert _daemon.Daemon("/h").binary() == str(program)
    monkeypatch.delenv("MOTU_BINARY")
    monkeypatch.setenv("PATH", str(program.parent))
    assert _daemon.Daemon("/h").binary() == str(program)


@pytest.mark.parametrize(
    ("says", "kind", "words"),
    [
        ('{"kind": "denied", "message": "not here"}', motu.DeniedError, "not here"),
        ("", motu.UnavailableError, "daemon.log"),
    ],
)
def test_a_daemon_that_cannot_start_says_why(tmp_path: Path, says: str, kind: type[motu.MotuError], words: str) -> None:
    program = tmp_path / "motu"
    program.write_text(f"#!/bin/sh\nprintf '%s' '{says}' >&0\n")
    program.chmod(0o755)
    with motu.Motu(tmp_path / "home", binary=program) as client, pytest.raises(kind) as caught:
        client.version()
    assert words in str(caught.value)


def test_a_socket_of_somebody_else_is_never_started(tmp_path: Path) -> None:
    with motu.Motu(socket=tmp_path / "s") as client, pytest.raises(motu.UnavailableError):
        client.version()
    with pytest.raises(motu.InvalidError):
        motu.Motu("/home", socket="/s")


def answering(directory: Path, answer: bytes) -> Path:
    """A socket where every connection gets the same answer."""
    path = directory / "s"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        while True:
            connection, _ = listener.accept()
            connection.recv(65_536)
            connection.sendall(answer)
            connection.close()

    threading.Thread(target=serve, daemon=True).start()
    return path


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"HTTP/1.1 200 OK\r\nmotu-api: 2\r\ncontent-length: 2\r\n\r\n{}", motu.UnavailableError),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", motu.UnavailableError),
        (b"HTTP/1.1 200 OK\r\nmotu-api: 1\r\ncontent-length: 2\r\n\r\n{]", motu.TransportError),
        (b"HTTP/1.1 200 OK\r\nmotu-api: 1\r\ncontent-length: 9\r\n\r\n{}", motu.TransportError),
        (b"HTTP/1.1 500 No\r\nmotu-api: 1\r\ncontent-length: 2\r\n\r\nno", motu.TransportError),
        (b"nonsense\r\n\r\n", motu.TransportError),
        (b"", motu.TransportError),
    ],
)
def test_other_answers_than_motus_are_told(tmp_path: Path, answer: bytes, kind: type[motu.MotuError]) -> None:
    with motu.Motu(socket=answering(tmp_path, answer)) as client, pytest.raises(kind):
        client.version()


def test_a_silent_daemon_is_left_in_time(tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    listener.listen()
    with motu.Motu(socket=tmp_path / "s", timeout_seconds=0.2) as client, pytest.raises(motu.TimedOutError):
        client.version()


def test_a_closed_client_says_so() -> None:
    client = motu.Motu("/nowhere")
    client.close()
    with pytest.raises(motu.InvalidError):
        client.version()


def test_a_server_is_a_command(tmp_path: Path) -> None:
    program = tmp_path / "motu"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    server = motu.create_server("workspace-core", home="/h", binary=program)
    assert server.config() == {
        "command": str(program),
        "args": ["--home", "/h", "mcp", "serve", "--profile", "workspace-core"],
    }
    assert server.run() == 3
    open_to = motu.create_server(home="/h", binary=program, host_dirs=["/srv/x"], allow_host_compat=True)
    assert open_to.command[-3:] == ["--host-dir", "/srv/x", "--allow-host-compat"]
    with pytest.raises(motu.InvalidError):
        motu.create_server("everything", home="/h", binary=program)  # type: ignore[arg-type]
