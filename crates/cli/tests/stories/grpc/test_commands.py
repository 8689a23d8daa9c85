"""Commands: collected, streamed, in the background."""

import time

import contract_pb2 as pb
import grpc
from conftest import made, refused

Code = grpc.StatusCode
EVERY_BYTE = bytes(range(256))
PRINT_EVERY_BYTE = "i=0; while [ $i -lt 256 ]; do printf \"\\\\$(printf %o $i)\"; i=$((i+1)); done"


def eventually(what, seconds=20):
    """Waits until something is true, and says so."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def stream(box, script, **fields):
    ask = pb.ExecStreamRequest(sandbox_id=box.id, cmd="sh", args=["-c", script], **fields)
    return box.stub.ExecStream(ask)


def folded(events):
    """Start, both channels, end."""
    start, out, err, end = None, b"", b"", None
    for event in events:
        kind = event.WhichOneof("event")
        assert end is None, "nothing comes after the end"
        if kind == "start":
            start = event.start
        elif kind == "end":
            end = event.end
        else:
            out += event.data.stdout
            err += event.data.stderr
    return start, out, err, end


def test_output_and_exit_code(box):
    answer = box.sh("echo out; echo err >&2; exit 7")
    assert (answer.stdout, answer.stderr, answer.exit_code) == (b"out\n", b"err\n", 7)


def test_no_shell_is_involved(box):
    assert box.run("echo", "$HOME", "a  b", ";").stdout == b"$HOME a  b ;\n"


def test_bytes_are_bytes(box):
    answer = box.sh(f"{PRINT_EVERY_BYTE}; ({PRINT_EVERY_BYTE}) >&2")
    assert answer.stdout == EVERY_BYTE
    assert answer.stderr == EVERY_BYTE
    _, out, err, end = folded(stream(box, f"{PRINT_EVERY_BYTE}; ({PRINT_EVERY_BYTE}) >&2"))
    assert (out, err, end.exit_code) == (EVERY_BYTE, EVERY_BYTE, 0)


def test_a_program_that_is_not_there_is_a_result(box):
    answer = box.run("no-such-program")
    assert answer.exit_code == 127 and b"no-such-program" in answer.stderr


def test_wrong_asks_are_told(box):
    with refused(Code.INVALID_ARGUMENT, "cmd"):
        box.run("")
    with refused(Code.INVALID_ARGUMENT, "timeout_sec"):
        box.run("true", timeout_sec=-1)
    with refused(Code.INVALID_ARGUMENT, "timeout_seconds"):
        box.run("true", timeout_sec=2_000_000_000)
    with refused(Code.RESOURCE_EXHAUSTED, "argument_bytes"):
        box.run("echo", "x" * 200_000)
    with refused(Code.RESOURCE_EXHAUSTED, "argv_bytes"):
        box.run("echo", *["x" * 100_000] * 22)
    with refused(Code.NOT_FOUND):
        list(box.stub.ExecStream(pb.ExecStreamRequest(sandbox_id="cl-nobody", cmd="true")))


def test_a_timeout_kills_the_tree_and_returns_what_there_is(box):
    begin = time.monotonic()
    answer = box.sh("echo early; sleep 4321 & sleep 4322", timeout_sec=1)
    assert time.monotonic() - begin < 10
    assert answer.stdout == b"early\n" and answer.exit_code == 137
    eventually(lambda: "sleep 432" not in box.says("ps -o args"))
    _, out, _, end = folded(stream(box, "echo early; sleep 4323", timeout_sec=1))
    assert out == b"early\n" and end.exit_code == 137 and "time limit" in end.error


def test_ten_megabytes_of_output(box):
    answer = box.sh("yes 0123456789abcde | head -c 10000000")
    assert len(answer.stdout) == 10_000_000
    _, out, _, end = folded(stream(box, "yes 0123456789abcde | head -c 30000000"))
    assert len(out) == 30_000_000 and end.exit_code == 0


def test_more_than_the_limit_is_cut_and_the_command_ends(box):
    answer = box.sh("head -c 20000000 /dev/zero; echo done >&2")
    assert len(answer.stdout) == 16 << 20
    assert (answer.stderr, answer.exit_code) == (b"done\n", 0)


def test_a_stream_begins_with_its_pid_and_comes_live(box):
    box.says("mkfifo /go")
    events = stream(box, "echo $$; cat /go; echo went", timeout_sec=60)
    first, second = next(events), next(events)
    assert first.start.pid > 0
    assert int(second.data.stdout) == first.start.pid
    box.says("echo > /go")
    _, out, _, end = folded(events)
    assert out == b"\nwent\n" and end.exit_code == 0 and end.error == ""


def test_who_leaves_a_stream_ends_its_command(box):
    events = stream(box, "sleep 5678 & echo started; wait")
    assert next(events).start.pid
    assert next(events).data.stdout == b"started\n"
    events.cancel()
    eventually(lambda: "sleep 5678" not in box.says("ps -o args"))


def test_who_leaves_a_call_ends_its_command(box):
    call = box.stub.Exec.future(
        pb.ExecRequest(sandbox_id=box.id, cmd="sleep", args=["6789"]), timeout=1
    )
    with refused(Code.DEADLINE_EXCEEDED):
        call.result()
    eventually(lambda: "sleep 6789" not in box.says("ps -o args"))


def test_a_slow_reader_holds_up_nobody_else(box):
    flood = stream(box, "yes")
    next(flood), next(flood)
    assert box.says("echo beside") == "beside"
    flood.cancel()


def background(box, script, **fields):
    ask = pb.StartBackgroundRequest(sandbox_id=box.id, cmd="sh", args=["-c", script], **fields)
    return box.stub.StartBackground(ask)


def connect(box, **selector):
    return box.stub.ConnectProcess(pb.ConnectProcessRequest(sandbox_id=box.id, **selector))


def running(box):
    listed = box.stub.ListProcesses(pb.ListProcessesRequest(sandbox_id=box.id))
    return {process.tag: process for process in listed.processes}


def test_a_background_process_outlives_its_callers(stub, box):
    started = background(
        box, "echo $WORD $PWD; sleep 1000", tag="web", envs={"WORD": "hi"}, cwd="/tmp"
    )
    assert started.tag == "web" and started.pid > 0
    listed = running(box)["web"]
    assert (listed.pid, listed.cmd, list(listed.args)[0]) == (started.pid, "sh", "-c")
    # Two readers, each from the beginning; leaving ends nothing.
    for selector in [{"tag": "web"}, {"pid": started.pid}]:
        events = connect(box, **selector)
        assert next(events).start.pid == started.pid
        assert next(events).data.stdout == b"hi /tmp\n"
        events.cancel()
    assert "web" in running(box)
    kill = pb.KillProcessRequest(sandbox_id=box.id, tag="web", signal="SIGTERM")
    stub.KillProcess(kill)
    _, out, _, end = folded(connect(box, tag="web"))
    assert (out, end.exit_code) == (b"hi /tmp\n", 128 + 15)
    assert "web" not in running(box)


def test_the_end_of_a_background_process_is_kept(box):
    started = background(box, "echo out; echo err >&2; exit 5")
    assert started.tag
    for _ in range(2):
        start, out, err, end = folded(connect(box, tag=started.tag))
        assert start.pid == started.pid
        assert (out, err, end.exit_code) == (b"out\n", b"err\n", 5)


def test_killing_reaches_everything_a_process_started(stub, box):
    started = background(box, "sleep 7891 & sleep 7892", tag="tree")
    eventually(lambda: "sleep 7892" in box.says("ps -o args"))
    stub.KillProcess(pb.KillProcessRequest(sandbox_id=box.id, pid=started.pid))
    assert folded(connect(box, tag="tree"))[3].exit_code == 137
    eventually(lambda: "sleep 789" not in box.says("ps -o args"))


def test_wrong_processes_are_told(stub, box):
    def kill(**fields):
        return stub.KillProcess(pb.KillProcessRequest(sandbox_id=box.id, **fields))

    with refused(Code.INVALID_ARGUMENT, "pid or tag"):
        kill()
    with refused(Code.INVALID_ARGUMENT, "signal"):
        background(box, "sleep 1000", tag="victim")
        kill(tag="victim", signal="SIGNOPE")
    kill(tag="victim")
    with refused(Code.NOT_FOUND):
        kill(tag="nobody")
    with refused(Code.NOT_FOUND):
        next(connect(box, tag="nobody"))
    with refused(Code.INVALID_ARGUMENT, "pid or tag"):
        next(connect(box))
    with refused(Code.INVALID_ARGUMENT, "tag"):
        background(box, "true", tag="not a tag")


def test_a_tag_is_of_one_living_process(box):
    background(box, "sleep 1000", tag="single")
    with refused(Code.FAILED_PRECONDITION, "single"):
        background(box, "sleep 1000", tag="single")


def test_commands_of_a_paused_sandbox(stub):
    with made(stub, memory_mb=128) as box:
        background(box, "echo kept; sleep 1000", tag="held")
        eventually(lambda: "held" in running(box))
        stub.PauseSandbox(pb.PauseSandboxRequest(sandbox_id=box.id))
        stub.ResumeSandbox(pb.ResumeSandboxRequest(sandbox_id=box.id))
        events = connect(box, tag="held")
        next(events)
        assert next(events).data.stdout == b"kept\n"
        events.cancel()
