"""The MCP server, for programs that start one from Python."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from . import errors
from ._daemon import Daemon

#: What a model sees of motu.
Profile = Literal["vm-run", "workspace-core", "workspace-full", "terminal", "agent-tool", "all"]


@dataclass(frozen=True, slots=True)
class Server:
    """`motu mcp serve`, ready to be run here or named in the settings of a client."""

    command: list[str]

    def run(self) -> int:
        """Serves on this program's standard input and output until the client leaves; the exit code."""
        return subprocess.run(self.command, check=False).returncode

    def config(self) -> dict[str, Any]:
        """The entry that most MCP clients want in their settings."""
        return {"command": self.command[0], "args": self.command[1:]}


def create_server(
    profile: Profile = "workspace-full",
    *,
    home: str | os.PathLike[str] | None = None,
    binary: str | os.PathLike[str] | None = None,
    host_dirs: Iterable[str | os.PathLike[str]] = (),
    allow_host_compat: bool = False,
) -> Server:
    """An MCP server of a profile; `workspace-core` is the one to begin with.

    A model names paths of the host at and below `host_dirs`, and machines without isolation only with
    `allow_host_compat`; nothing it says adds to that.
    """
    return server_of(Daemon(home, binary=binary), profile, host_dirs, allow_host_compat)


def server_of(
    daemon: Daemon,
    profile: str,
    host_dirs: Iterable[str | os.PathLike[str]] = (),
    allow_host_compat: bool = False,
) -> Server:
    if profile not in get_args(Profile):
        raise errors.InvalidError(
            f"there is no profile {profile!r}", hint="the profiles are " + ", ".join(get_args(Profile))
        )
    if daemon.home is None:
        raise errors.UnsupportedError("an MCP server needs a state directory, not a socket")
    command = [daemon.binary(), "--home", os.fspath(daemon.home), "mcp", "serve", "--profile", profile]
    for directory in host_dirs:
        command += ["--host-dir", os.path.abspath(directory)]
    if allow_host_compat:
        command.append("--allow-host-compat")
    return Server(command)
