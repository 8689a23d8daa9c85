"""A motu of the tests' own.

The state directory is `MOTU_HOME` when that is set (by `crates/cli/tests/stories/python.rs`, which cleans up),
or a new one with the runtime of `MOTU_TEST_RUNTIME`. The program is `MOTU_BINARY`.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from motu import Motu

ROOT = Path(__file__).resolve().parents[3]
IMAGE = "busybox"


def until(condition: Callable[[], bool], seconds: float = 120) -> None:
    """Asks until something is so."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not so in {seconds} s"
        time.sleep(0.02)


@pytest.fixture(scope="session")
def home() -> Iterator[Path]:
    """A state directory where machines can be made."""
    os.environ.setdefault("MOTU_BINARY", str(ROOT / "target/debug/motu"))
    given = os.environ.get("MOTU_HOME")
    if given:
        yield Path(given)
        return
    place = Path(tempfile.mkdtemp(prefix="motu-python-"))
    runtime = os.environ.get("MOTU_TEST_RUNTIME", "container")
    (place / "config.toml").write_text(f'runtime = "{runtime}"\n')
    os.environ["MOTU_HOME"] = str(place)
    try:
        yield place
    finally:
        with Motu(place) as motu:
            for workspace in motu.list_workspaces().workspaces:
                motu.delete_workspace(workspace.workspace_id)
            for sandbox in motu.list_sandboxes().sandboxes:
                motu.destroy_sandbox(sandbox.sandbox_id)
        subprocess.run([os.environ["MOTU_BINARY"], "--home", place, "serve", "--stop"], check=True)
        shutil.rmtree(place, ignore_errors=True)
        del os.environ["MOTU_HOME"]


@pytest.fixture(scope="session")
def motu(home: Path) -> Iterator[Motu]:
    with Motu(home) as client:
        yield client


@pytest.fixture(scope="session")
def runtime(motu: Motu) -> str:
    """The runtime that makes the machines of these tests."""
    return motu.run_in_vm(IMAGE, ["true"], timeout_seconds=300).runtime


@pytest.fixture(scope="session")
def fresh() -> Callable[[str], str]:
    """Names that were not used before, also by another run on the same state directory."""
    numbers = itertools.count()
    return lambda word: f"{word}-{os.getpid()}-{next(numbers)}"
