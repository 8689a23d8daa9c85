# Written by generate.py; change that, or what it reads.
"""One machine as an object, which goes when its `with` ends."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from .. import errors, types
from ..network import NetworkPolicy
from .client import Motu
from .streams import Stream


class Files:
    """The files of a machine. Paths are absolute.

    With a `user` it is done with the rights of that user, whose new files are; without one, with those of root.
    """

    def __init__(self, motu: Motu, sandbox_id: str) -> None:
        self._motu = motu
        self._id = sandbox_id

    def write(
        self,
        path: str | os.PathLike[str],
        content: str | bytes,
        *,
        mode: str | None = None,
        user: str | None = None,
    ) -> types.FileEntry:
        """Write a whole file, with the directories it needs."""
        data = content.encode() if isinstance(content, str) else content
        return self._motu.write_file(self._id, path, data, mode=mode, user=user)

    def read(self, path: str | os.PathLike[str], *, user: str | None = None) -> bytes:
        return self._motu.read_file(self._id, path, user=user)

    def read_text(self, path: str | os.PathLike[str], *, user: str | None = None) -> str:
        return (self.read(path, user=user)).decode()

    def list(self, path: str | os.PathLike[str], *, user: str | None = None) -> list[types.FileEntry]:
        """All that is in a directory."""
        page = self._motu.list_files(self._id, path, user=user)
        entries = page.entries
        while page.next is not None:
            page = self._motu.list_files(self._id, path, after=page.next, user=user)
            entries += page.entries
        return entries

    def stat(self, path: str | os.PathLike[str], *, user: str | None = None) -> types.FileEntry:
        return self._motu.stat(self._id, path, user=user)

    def exists(self, path: str | os.PathLike[str], *, user: str | None = None) -> bool:
        try:
            self.stat(path, user=user)
        except errors.NoSuchUserError:
            raise
        except (errors.NotFoundError, errors.PathNotADirectoryError):
            return False
        return True

    def mkdir(self, path: str | os.PathLike[str], *, user: str | None = None) -> types.FileEntry:
        return self._motu.mkdir(self._id, path, user=user)

    def move(
        self, source: str | os.PathLike[str], target: str | os.PathLike[str], *, user: str | None = None
    ) -> types.FileEntry:
        return self._motu.move_file(self._id, source, target, user=user)

    def remove(self, path: str | os.PathLike[str], *, recursive: bool = False, user: str | None = None) -> None:
        self._motu.remove_file(self._id, path, recursive=recursive, user=user)


class Process:
    """A process that runs on by itself."""

    def __init__(self, motu: Motu, sandbox_id: str, started: types.Background) -> None:
        self._motu = motu
        self._id = sandbox_id
        self.pid = started.pid
        self.tag = started.tag

    def stream(self) -> Stream:
        """What it writes, from its first byte that is still known."""
        return self._motu.attach_output(self._id, self.pid)

    def wait(self) -> types.Exited:
        """Waits until it has ended."""
        with self.stream() as stream:
            return stream.wait()

    def kill(self) -> None:
        """Ends it and all it has started."""
        self._motu.kill_process(self._id, self.pid, tree=True)


class Commands:
    """The commands of a machine."""

    def __init__(self, motu: Motu, sandbox_id: str) -> None:
        self._motu = motu
        self._id = sandbox_id

    def run(
        self,
        command: str | Sequence[str],
        timeout_seconds: int = 30,
        max_output_bytes: int | None = None,
        *,
        env: Mapping[str, str] | None = None,
        input: str | bytes | None = None,
        user: str | None = None,
        workdir: str | None = None,
    ) -> types.ExecResult:
        """Run one command to its end. A string is a script for the shell, a sequence a program and its arguments.

        `input` is what its standard input holds. A program that was not started at all has `not_started`.
        """
        return self._motu.exec(
            self._id,
            command,
            timeout_seconds=timeout_seconds,
            max_output_bytes=max_output_bytes,
            env=env,
            input=input,
            user=user,
            workdir=workdir,
        )

    def start(self, command: str | Sequence[str], *, tag: str | None = None, **more: Any) -> Process:
        """Start a process that runs on; `more` are other fields of `exec_background`."""
        if "timeout_seconds" not in more:
            more.setdefault("no_timeout", True)
        started = self._motu.exec_background(self._id, command, tag=tag, **more)
        return Process(self._motu, self._id, started)

    def stream(self, command: str | Sequence[str], **more: Any) -> Stream:
        """Run one command with its output as it comes, and with input if `stdin=True`."""
        return self._motu.exec_stream(self._id, command, **more)

    def list(self) -> list[types.Process]:
        return (self._motu.list_processes(self._id)).processes


class Sandbox:
    """One isolated machine. Leaving its `with` destroys it."""

    def __init__(self, motu: Motu, info: types.Sandbox, *, owned: bool = False) -> None:
        """`owned` says that the client goes with the machine."""
        self.info = info
        self.motu = motu
        self._owned = owned
        self.files = Files(motu, info.sandbox_id)
        self.commands = Commands(motu, info.sandbox_id)

    @classmethod
    def create(
        cls,
        image: str,
        *,
        network: NetworkPolicy | None = None,
        ttl_seconds: int | None = None,
        motu: Motu | None = None,
        **more: Any,
    ) -> Sandbox:
        """Make a machine of an environment. Without `network` it has none. `more` are other fields of `create_sandbox`."""
        client = motu if motu is not None else Motu()
        policy = (network or NetworkPolicy.deny_by_default()).policy
        try:
            info = client.create_sandbox(image, policy=policy, ttl_seconds=ttl_seconds, **more)
        except BaseException:
            if motu is None:
                client.close()
            raise
        return cls(client, info, owned=motu is None)

    @classmethod
    def connect(cls, sandbox_id: str, *, motu: Motu | None = None) -> Sandbox:
        """A machine that is there already."""
        client = motu if motu is not None else Motu()
        try:
            info = client.get_sandbox(sandbox_id)
        except BaseException:
            if motu is None:
                client.close()
            raise
        return cls(client, info, owned=motu is None)

    @property
    def id(self) -> str:
        return self.info.sandbox_id

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r}, {self.info.environment!r}, isolation={self.info.isolation!r})"

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.destroy()

    def refresh(self) -> types.Sandbox:
        """Asks again what is known of it."""
        self.info = self.motu.get_sandbox(self.id)
        return self.info

    def pause(self) -> types.Sandbox:
        self.info = self.motu.pause_sandbox(self.id)
        return self.info

    def resume(self) -> types.Sandbox:
        self.info = self.motu.resume_sandbox(self.id)
        return self.info

    def keepalive(self, ttl_seconds: int | None = None) -> types.Sandbox:
        """Puts off its end."""
        self.info = self.motu.keepalive(self.id, ttl_seconds=ttl_seconds)
        return self.info

    def fork(self, count: int = 1) -> list[Sandbox]:
        """Copies of it as it is now, with memory and processes. Each is yours to destroy."""
        copies = self.motu.fork_sandbox(self.id, count=count)
        return [Sandbox(self.motu, info) for info in copies.sandboxes]

    def set_policy(self, network: NetworkPolicy) -> types.Sandbox:
        """Changes what it may reach from now on."""
        self.info = self.motu.set_policy(self.id, network.policy or "none")
        return self.info

    def destroy(self) -> None:
        """Throws it away. One that is gone already is no error."""
        try:
            with contextlib.suppress(errors.NotFoundError):
                self.motu.destroy_sandbox(self.id)
        finally:
            if self._owned:
                self.motu.close()
