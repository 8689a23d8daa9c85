"""Each kind of error, as the daemon really answers it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import IMAGE, until

from motu import Motu, Sandbox, errors


def test_invalid(motu: Motu) -> None:
    with pytest.raises(errors.InvalidError) as caught:
        motu.create_sandbox(IMAGE, mem_mib=-1)
    assert caught.value.kind == "invalid"


def test_denied(motu: Motu) -> None:
    with pytest.raises(errors.DeniedError) as caught:
        motu.call(image=IMAGE, command=["true"], state={"retention": "destroy"}, secrets={"TOKEN": "nobodys"})
    assert caught.value.details["class"] == "policy_denial"
    assert caught.value.hint
    assert caught.value.audit_id


def test_not_found(motu: Motu) -> None:
    with pytest.raises(errors.NotFoundError) as caught:
        motu.get_sandbox("sb-nobody")
    assert caught.value.hint
    assert caught.value.audit_id


def test_conflict(motu: Motu, fresh: Callable[[str], str]) -> None:
    name = fresh("twice")
    with Sandbox.create(IMAGE, sandbox_id=name, motu=motu), pytest.raises(errors.ConflictError):
        motu.create_sandbox(IMAGE, sandbox_id=name)


@pytest.fixture(scope="module")
def ws(motu: Motu) -> Iterator[str]:
    name = motu.create_workspace(IMAGE).workspace_id
    yield name
    motu.delete_workspace(name)


def test_limit(motu: Motu, ws: str) -> None:
    with pytest.raises(errors.LimitError) as caught:
        motu.write_workspace_file(ws, "large", text="x" * (3 << 20))
    assert caught.value.hint


def test_timeout(motu: Motu, ws: str) -> None:
    """It is a `TimeoutError` too, for callers that know only those."""
    with pytest.raises(TimeoutError) as caught:
        motu.start_service(
            ws, "late", command="sleep 1000", readiness={"type": "tcp", "port": 1}, ready_timeout_seconds=1
        )
    assert isinstance(caught.value, errors.TimedOutError)


def test_unavailable(motu: Motu, ws: str) -> None:
    with pytest.raises(errors.UnavailableError) as caught:
        motu.start_service(ws, "ended", command="false", readiness={"type": "tcp", "port": 1})
    assert caught.value.hint


def test_unsupported(motu: Motu, runtime: str) -> None:
    with Sandbox.create(IMAGE, motu=motu) as box:
        if runtime == "qemu":
            pytest.skip("virtual machines can be forked")
        with pytest.raises(errors.UnsupportedError) as caught:
            box.fork()
    assert caught.value.hint


def test_a_call_that_the_daemon_died_under_is_transport(motu: Motu, home: Path) -> None:
    """It is not sent again: the command may have run."""
    failed: list[BaseException] = []

    with Sandbox.create(IMAGE, motu=motu, keep=True) as box:
        before = box.motu.version().pid

        def run() -> None:
            with Motu(home) as other:
                try:
                    other.exec(box.id, "echo begun >> /workspace/runs; sleep 1000", timeout_seconds=2000)
                except errors.MotuError as error:
                    failed.append(error)

        runner = threading.Thread(target=run)
        runner.start()
        until(lambda: box.files.exists("/workspace/runs"))
        os.kill(before, signal.SIGKILL)
        runner.join(timeout=120)
        assert not runner.is_alive()
        assert isinstance(failed[0], errors.TransportError)
        # The next call starts another daemon, which finds the machine.
        assert box.motu.version().pid != before
        assert box.files.read_text("/workspace/runs") == "begun\n"
