"""Terminals."""

from __future__ import annotations

from cases.world import World, seen_in

import motu as sdk
from motu import errors

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


def terminate_terminal(w: World) -> None:
    name = w.fresh("ended")
    w.motu.open_terminal(name, sandbox_id=w.box, command=["sh"])
    assert w.motu.terminate_terminal(name).terminated
