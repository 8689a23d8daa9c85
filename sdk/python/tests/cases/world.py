"""What verbs are tried on."""

from __future__ import annotations

import contextlib
import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from conftest import IMAGE

import motu as sdk

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


def seen_in(stream: Any, text: bytes) -> None:
    seen = b""
    for event in stream:
        seen += event.data if isinstance(event, sdk.Output) else b""
        if text in seen:
            return
    raise AssertionError(seen)
