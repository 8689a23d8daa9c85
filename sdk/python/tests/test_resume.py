"""What goes on when the daemon is killed: streams at the next byte, calls with the next daemon."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from conftest import IMAGE

import motu as sdk
from motu import AsyncMotu, AsyncSandbox, Motu, Sandbox

LINES = 200
#: Writes numbered lines to both channels, slowly enough to be interrupted in the middle.
SCRIPT = f"""
i=0
while [ $i -lt {LINES} ]; do echo out $i; echo err $i >&2; i=$((i + 1)); usleep 20000; done
exit 6
"""
STDOUT = "".join(f"out {number}\n" for number in range(LINES)).encode()
STDERR = "".join(f"err {number}\n" for number in range(LINES)).encode()


def kill(motu_pid: int) -> None:
    os.kill(motu_pid, signal.SIGKILL)


class Heard:
    """What a stream brought, and whether each piece followed the one before."""

    def __init__(self) -> None:
        self.stdout = b""
        self.stderr = b""

    def hear(self, event: sdk.StreamEvent) -> None:
        assert not isinstance(event, sdk.types.Gap), event
        if isinstance(event, sdk.Output):
            if event.channel == "stdout":
                assert event.offset == len(self.stdout)
                self.stdout += event.data
            else:
                assert event.offset == len(self.stderr)
                self.stderr += event.data


def test_a_stream_goes_on_at_the_next_byte(home: Path, runtime: str) -> None:
    with Motu(home) as motu, Sandbox.create(IMAGE, motu=motu, keep=True) as box:
        process = box.commands.start(SCRIPT, tag="lines")
        heard, kills = Heard(), 0
        with motu.attach_output(box.id, "lines") as stream:
            for event in stream:
                heard.hear(event)
                if kills < 3 and len(heard.stdout) > (kills + 1) * len(STDOUT) // 5:
                    kill(motu.version().pid)
                    kills += 1
            assert stream.exited is not None and stream.exited.exit_code == 6
        assert (heard.stdout, heard.stderr, kills) == (STDOUT, STDERR, 3)
        assert process.wait().exit_code == 6


def test_a_command_with_a_stream_of_its_own_goes_on_too(home: Path, runtime: str) -> None:
    with Motu(home) as motu, Sandbox.create(IMAGE, motu=motu, keep=True) as box:
        heard, killed = Heard(), False
        with box.commands.stream(SCRIPT, timeout_seconds=600) as stream:
            for event in stream:
                heard.hear(event)
                if not killed and len(heard.stdout) > len(STDOUT) // 3:
                    kill(motu.version().pid)
                    killed = True
            assert stream.exited is not None and stream.exited.exit_code == 6
        assert (heard.stdout, heard.stderr, killed) == (STDOUT, STDERR, True)


def test_a_stream_with_input_goes_on_too(home: Path, runtime: str) -> None:
    with Motu(home) as motu, Sandbox.create(IMAGE, motu=motu, keep=True) as box:
        box.commands.start("while read line; do echo got $line; done; exit 4", tag="echo", stdin=True)
        with motu.attach(box.id, "echo") as stream:
            stream.write("one\n")
            heard = Heard()
            while heard.stdout != b"got one\n":
                heard.hear(next(stream))
            kill(motu.version().pid)
            # Whoever types must know that it arrives, so a stream reconnects when it reads.
            motu.signal_process(box.id, "echo", "CONT")
            with motu.attach(box.id, "echo", from_="newest") as other:
                other.write("two\n")
                while heard.stdout != b"got one\ngot two\n":
                    heard.hear(next(stream))
            stream.write("three\n")
            while heard.stdout != b"got one\ngot two\ngot three\n":
                heard.hear(next(stream))
            stream.close_stdin()
            assert stream.wait().exit_code == 4


def test_the_same_without_waiting(home: Path, runtime: str) -> None:
    async def story() -> None:
        async with AsyncMotu(home) as motu, await AsyncSandbox.create(IMAGE, motu=motu, keep=True) as box:
            await box.commands.start(SCRIPT, tag="lines")
            heard, killed = Heard(), False
            async with await motu.attach_output(box.id, "lines") as stream:
                async for event in stream:
                    heard.hear(event)
                    if not killed and len(heard.stdout) > len(STDOUT) // 3:
                        kill((await motu.version()).pid)
                        killed = True
                assert stream.exited is not None and stream.exited.exit_code == 6
            assert (heard.stdout, heard.stderr, killed) == (STDOUT, STDERR, True)

    asyncio.run(story())


def test_cursors_of_shells_and_terminals_outlive_the_daemon(home: Path, runtime: str) -> None:
    with Motu(home) as motu:
        ws = motu.create_workspace(IMAGE).workspace_id
        shell = motu.open_shell(ws).shell_id
        motu.write_shell(ws, shell, input="echo $((6 * 7))")
        seen, cursor = "", 0
        while "\n42" not in seen:
            read = motu.read_shell(ws, shell, cursor=cursor, wait_for_idle_ms=200)
            seen, cursor = seen + read.output, read.next_cursor
        kill(motu.version().pid)
        motu.write_shell(ws, shell, input="echo $((6 * 8))")
        while "\n48" not in seen:
            read = motu.read_shell(ws, shell, cursor=cursor, wait_for_idle_ms=200)
            assert not read.lost
            seen, cursor = seen + read.output, read.next_cursor
        assert seen.count("\n42") == 1 and seen.count("\n48") == 1
        motu.delete_workspace(ws)


def test_calls_find_the_next_daemon(home: Path, runtime: str) -> None:
    with Motu(home) as motu, Sandbox.create(IMAGE, motu=motu, keep=True) as box:
        box.files.write("/workspace/a", "kept")
        for _ in range(3):
            kill(motu.version().pid)
            assert box.files.read("/workspace/a") == b"kept"
            kill(motu.version().pid)
            assert box.commands.run(["cat", "/workspace/a"], timeout_seconds=60).stdout == "kept"


def test_two_clients_start_one_daemon(home: Path, runtime: str) -> None:
    async def story() -> None:
        async with AsyncMotu(home) as one, AsyncMotu(home) as two:
            kill((await one.version()).pid)
            first, second = await asyncio.gather(one.version(), two.version())
            assert first.pid == second.pid

    asyncio.run(story())


def test_events_go_on_with_the_next_daemon(home: Path, runtime: str) -> None:
    with Motu(home) as motu:
        (last,) = motu.read_events(tail=1)
        events = motu.events(after=last["sequence"], kind="sandbox")
        heard: list[sdk.types.HostEvent] = []
        made: list[str] = []
        for _ in range(3):
            made.append(motu.create_sandbox(IMAGE).sandbox_id)
            kill(motu.version().pid)
            heard.append(next(events))
            motu.destroy_sandbox(made[-1])
            heard.append(next(events))
        assert [event.id for event in heard] == [one for one in made for _ in range(2)]
        assert [event.kind for event in heard] == ["sandbox.created", "sandbox.destroyed"] * 3
        # What was heard is what is kept after the first, each once.
        kept = [line["sequence"] for line in motu.read_events(after=heard[0].sequence - 1, kind="sandbox")]
        assert [event.sequence for event in heard] == kept
        events.close()


def test_events_go_on_with_the_next_daemon_for_those_who_do_not_wait(home: Path, runtime: str) -> None:
    async def story() -> None:
        async with AsyncMotu(home) as motu:
            events = motu.events(tail=1, kind="host")
            first = await anext(events)
            assert first.kind == "host.started" and first.facts.version
            kill((await motu.version()).pid)
            await motu.list_sandboxes()
            second = await anext(events)
            assert second.kind == "host.started" and second.sequence > first.sequence
            await events.aclose()

    asyncio.run(story())
