"""Programs on terminals."""

import contract_pb2 as pb
import grpc
from conftest import refused

Code = grpc.StatusCode


def attach(box, **fields):
    return box.stub.PtyAttach(pb.PtyAttachRequest(sandbox_id=box.id, **fields))


def type_in(box, tag, data):
    box.stub.PtySendInput(pb.PtySendInputRequest(sandbox_id=box.id, tag=tag, data=data))


def until(events, wanted):
    """Reads until something was printed; gives all of it."""
    seen = b""
    for event in events:
        assert event.WhichOneof("event") != "exited", seen
        seen += event.output.data
        if wanted in seen:
            return seen
    raise AssertionError(seen)


def ended(events):
    """What was still printed, and how it ended."""
    seen = b""
    for event in events:
        if event.WhichOneof("event") == "exited":
            return seen, event.exited
        seen += event.output.data
    raise AssertionError(seen)


def test_a_shell_is_typed_into_resized_and_ends(box):
    events = attach(
        box,
        tag="pty-one",
        cmd="sh",
        cols=100,
        rows=30,
        envs={"PS1": "ready> ", "WORD": "hi"},
        cwd="/tmp",
    )
    started = next(events).started
    assert started.pid > 0 and started.tag == "pty-one"
    until(events, b"ready> ")
    type_in(box, "pty-one", b"stty size; echo $WORD-$PWD; id -u\n")
    assert b"30 100\r\nhi-/tmp\r\n0\r\n" in until(events, b"0\r\nready> ")
    box.stub.PtyResize(pb.PtyResizeRequest(sandbox_id=box.id, tag="pty-one", cols=132, rows=50))
    type_in(box, "pty-one", b"stty size\n")
    assert b"50 132" in until(events, b"132\r\nready> ")
    type_in(box, "pty-one", b"exit 3\n")
    assert ended(events)[1].exit_code == 3


def test_the_user_is_honoured(box):
    events = attach(box, tag="pty-user", cmd="id", args=["-un"], user="nobody")
    next(events)
    seen, exited = ended(events)
    assert seen == b"nobody\r\n" and exited.exit_code == 0


def test_a_terminal_is_found_again_with_what_it_printed(box):
    events = attach(box, tag="pty-again", cmd="sh", envs={"PS1": "> "})
    started = next(events).started
    type_in(box, "pty-again", b"echo one\n")
    before = until(events, b"one\r\n> ")
    events.cancel()
    # It takes input while nobody listens.
    type_in(box, "pty-again", b"echo two\n")
    events = attach(box, tag="pty-again")
    assert next(events).started == started
    assert until(events, b"two\r\n> ").startswith(before)
    # Two may listen, and input of many calls keeps its order.
    second = attach(box, tag="pty-again")
    next(second)
    type_in(box, "pty-again", b"cat > /typed\n")
    text = b"".join(b"line %03d\n" % number for number in range(200))
    for begin in range(0, len(text), 7):
        type_in(box, "pty-again", text[begin : begin + 7])
    type_in(box, "pty-again", b"\x04")
    type_in(box, "pty-again", b"exit 4\n")
    for reader in [events, second]:
        seen, exited = ended(reader)
        assert b"cat > /typed" in seen and exited.exit_code == 4
    assert box.run("cat", "/typed").stdout == text
    # And is remembered after its end.
    events = attach(box, tag="pty-again")
    next(events)
    seen, exited = ended(events)
    assert seen.startswith(before) and exited.exit_code == 4


def test_a_terminal_is_killed_with_all_it_started(box):
    events = attach(box, tag="pty-kill", cmd="sh", args=["-c", "trap '' TERM HUP; sleep 8123"])
    next(events)
    box.stub.PtyKill(pb.PtyKillRequest(sandbox_id=box.id, tag="pty-kill"))
    assert ended(events)[1].exit_code == 137
    assert "sleep 8123" not in box.says("ps -o args")


def test_a_tag_is_made_when_none_is_given(box):
    events = attach(box, cmd="tty")
    assert next(events).started.tag
    assert b"/dev/pts" in ended(events)[0]


def test_wrong_terminals_are_told(box):
    with refused(Code.NOT_FOUND):
        next(attach(box, tag="pty-nobody"))
    with refused(Code.INVALID_ARGUMENT, "cmd nor tag"):
        next(attach(box))
    with refused(Code.NOT_FOUND):
        type_in(box, "pty-nobody", b"x")
    with refused(Code.NOT_FOUND):
        box.stub.PtyResize(pb.PtyResizeRequest(sandbox_id=box.id, tag="pty-nobody", cols=1, rows=1))
    with refused(Code.NOT_FOUND):
        box.stub.PtyKill(pb.PtyKillRequest(sandbox_id=box.id, tag="pty-nobody"))
    with refused(Code.INVALID_ARGUMENT, "cols"):
        next(attach(box, tag="pty-wide", cmd="sh", cols=70_000))
    list(attach(box, tag="pty-over", cmd="true"))
    with refused(Code.NOT_FOUND, "ended"):
        type_in(box, "pty-over", b"x")
