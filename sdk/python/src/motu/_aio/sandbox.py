"""One machine as an object, which goes when its `with` ends."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from .. import errors, types
from ..network import NetworkPolicy
from .client import AsyncMotu
from .streams import AsyncStream


class AsyncFiles:
    """The files of a machine. Paths are absolute.

    With a `user` it is done with the rights of that user, whose new files are; without one, with those of root.
    """

    def __init__(self, motu: AsyncMotu, sandbox_id: str) -> None:
        self._motu = motu
        self._id = sandbox_id

    async def write(
        self,
        path: str | os.PathLike[str],
        content: str | bytes,
        *,
        mode: str | None = None,
        user: str | None = None,
    ) -> types.FileEntry:
        """Write a whole file, with the directories it needs."""
        data = content.encode() if isinstance(content, str) else content
        return await self._motu.write_file(self._id, path, data, mode=mode, user=user)

    async def read(self, path: str | os.PathLike[str], *, user: str | None = None) -> bytes:
        return await self._motu.read_file(self._id, path, user=user)

    async def read_text(self, path: str | os.PathLike[str], *, user: str | None = None) -> str:
        return (await self.read(path, user=user)).decode()

    async def list(self, path: str | os.PathLike[str], *, user: str | None = None) -> list[types.FileEntry]:
        """All that is in a directory."""
        page = await self._motu.list_files(self._id, path, user=user)
        entries = page.entries
        while page.next is not None:
            page = await self._motu.list_files(self._id, path, after=page.next, user=user)
            entries += page.entries
        return entries

    async def stat(self, path: str | os.PathLike[str], *, user: str | None = None) -> types.FileEntry:
        return await self._motu.stat(self._id, path, user=user)

    async def exists(self, path: str | os.PathLike[str], *, user: str | None = None) -> bool:
        try:
            await self.stat(path, user=user)
        except errors.NoSuchUserError:
            raise
        except (errors.NotFoundError, errors.PathNotADirectoryError):
            return False
        return True

    async def mkdir(self, path: str | os.PathLike[str], *, user: str | None = None) -> types.FileEntry:
        return await self._motu.mkdir(self._id, path, user=user)

    async def move(
        self, source: str | os.PathLike[str], target: str | os.PathLike[str], *, user: str | None = None
    ) -> types.FileEntry:
        return await self._motu.move_file(self._id, source, target, user=user)

    async def remove(self, path: str | os.PathLike[str], *, recursive: bool = False, user: str | None = None) -> None:
        await self._motu.remove_file(self._id, path, recursive=recursive, user=user)


class AsyncProcess:
    """A process that runs on by itself."""

    def __init__(self, motu: AsyncMotu, sandbox_id: str, started: types.Background) -> None:
        self._motu = motu
        self._id = sandbox_id
        self.pid = started.pid
        self.tag = started.tag

    async def stream(self) -> AsyncStream:
        """What it writes, from its first byte that is still known."""
        return await self._motu.attach_output(self._id, self.pid)

    async def wait(self) -> types.Exited:
        """Waits until it has ended."""
        async with await self.stream() as stream:
            return await stream.wait()

    async def kill(self) -> None:
        """Ends it and all it has started."""
        await self._motu.kill_process(self._id, self.pid, tree=True)


class AsyncCommands:
    """The commands of a machine."""

    def __init__(self, motu: AsyncMotu, sandbox_id: str) -> None:
        self._motu = motu
        self._id = sandbox_id

    async def run(
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
        return await self._motu.exec(
            self._id,
            command,
            timeout_seconds=timeout_seconds,
            max_output_bytes=max_output_bytes,
            env=env,
            input=input,
            user=user,
            workdir=workdir,
        )

    async def start(self, command: str | Sequence[str], *, tag: str | None = None, **more: Any) -> AsyncProcess:
        """Start a process that runs on; `more` are other fields of `exec_background`."""
        if "timeout_seconds" not in more:
            more.setdefault("no_timeout", True)
        started = await self._motu.exec_background(self._id, command, tag=tag, **more)
        return AsyncProcess(self._motu, self._id, started)

    async def stream(self, command: str | Sequence[str], **more: Any) -> AsyncStream:
        """Run one command with its output as it comes, and with input if `stdin=True`."""
        return await self._motu.exec_stream(self._id, command, **more)

    async def list(self) -> list[types.Process]:
        return (await self._motu.list_processes(self._id)).processes


class AsyncSandbox:
    """One isolated machine. Leaving its `with` destroys it."""

    def __init__(self, motu: AsyncMotu, info: types.Sandbox, *, owned: bool = False) -> None:
        """`owned` says that the client goes with the machine."""
        self.info = info
        self.motu = motu
        self._owned = owned
        self.files = AsyncFiles(motu, info.sandbox_id)
        self.commands = AsyncCommands(motu, info.sandbox_id)

    @classmethod
    async def create(
        cls,
        image: str,
        *,
        network: NetworkPolicy | None = None,
        ttl_seconds: int | None = None,
        motu: AsyncMotu | None = None,
        **more: Any,
    ) -> AsyncSandbox:
        """Make a machine of an environment. Without `network` it has none. `more` are other fields of `create_sandbox`."""
        client = motu if motu is not None else AsyncMotu()
        policy = (network or NetworkPolicy.deny_by_default()).policy
        try:
            info = await client.create_sandbox(image, policy=policy, ttl_seconds=ttl_seconds, **more)
        except BaseException:
            if motu is None:
                await client.aclose()
            raise
        return cls(client, info, owned=motu is None)

    @classmethod
    async def connect(cls, sandbox_id: str, *, motu: AsyncMotu | None = None) -> AsyncSandbox:
        """A machine that is there already."""
        client = motu if motu is not None else AsyncMotu()
        try:
            info = await client.get_sandbox(sandbox_id)
        except BaseException:
            if motu is None:
                await client.aclose()
            raise
        return cls(client, info, owned=motu is None)

    @property
    def id(self) -> str:
        return self.info.sandbox_id

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r}, {self.info.environment!r}, isolation={self.info.isolation!r})"

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.destroy()

    async def refresh(self) -> types.Sandbox:
        """Asks again what is known of it."""
        self.info = await self.motu.get_sandbox(self.id)
        return self.info

    async def pause(self) -> types.Sandbox:
        self.info = await self.motu.pause_sandbox(self.id)
        return self.info

    async def resume(self) -> types.Sandbox:
        self.info = await self.motu.resume_sandbox(self.id)
        return self.info

    async def keepalive(self, ttl_seconds: int | None = None) -> types.Sandbox:
        """Puts off its end."""
        self.info = await self.motu.keepalive(self.id, ttl_seconds=ttl_seconds)
        return self.info

    async def fork(self, count: int = 1) -> list[AsyncSandbox]:
        """Copies of it as it is now, with memory and processes. Each is yours to destroy."""
        copies = await self.motu.fork_sandbox(self.id, count=count)
        return [AsyncSandbox(self.motu, info) for info in copies.sandboxes]

    async def set_policy(self, network: NetworkPolicy) -> types.Sandbox:
        """Changes what it may reach from now on."""
        self.info = await self.motu.set_policy(self.id, network.policy or "none")
        return self.info

    async def destroy(self) -> None:
        """Throws it away. One that is gone already is no error."""
        try:
            with contextlib.suppress(errors.NotFoundError):
                await self.motu.destroy_sandbox(self.id)
        finally:
            if self._owned:
                await self.motu.aclose()
