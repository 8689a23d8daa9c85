"""The MCP server, for programs that start one from Python."""

from __future__ import annotations

import os
import subprocess
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
) -> Server:
    """An MCP server of a profile; `workspace-core` is the one to begin with."""
    return server_of(Daemon(home, binary=binary), profile)


def server_of(daemon: Daemon, profile: str) -> Server:
    if profile not in get_args(Profile):
        raise errors.InvalidError(
            f"there is no profile {profile!r}", hint="the profiles are " + ", ".join(get_args(Profile))
        )
    if daemon.home is None:
        raise errors.UnsupportedError("an MCP server needs a state directory, not a socket")
    return Server([daemon.binary(), "--home", os.fspath(daemon.home), "mcp", "serve", "--profile", profile])
