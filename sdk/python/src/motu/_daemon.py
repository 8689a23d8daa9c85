"""Finding the daemon of a state directory, or starting it.

The protocol is that of the command line: the new daemon gets the writing end of a pipe as its
standard input and says `ready` there, or why it cannot be. Two clients that start one at once
both succeed: the second daemon sees the first, says `ready` for it and leaves.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sysconfig
import threading
import time
from pathlib import Path

from . import errors

#: How long a daemon may take to start.
START_SECONDS = 120.0
#: What a daemon says may be no longer than this.
ANSWER_BYTES = 65_536
#: The longest path that fits into a socket's address, with its final zero.
SUN_PATH_BYTES = 108
#: The variables a daemon keeps of those of the program that happened to start it, and all `MOTU_…`.
KEPT = frozenset(
    "PATH HOME USER LOGNAME LANG TMPDIR RUST_BACKTRACE SSL_CERT_FILE SSL_CERT_DIR"
    " HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY".split()
)


def installed_binary() -> Path | None:
    """The program that came with this package, if one did: it is among the scripts of where the package is."""
    package = Path(__file__).parent
    scripts = Path(sysconfig.get_path("scripts"))
    # Of the environment that the package is in, not of any other it may be imported from.
    ours = Path(sysconfig.get_path("purelib")) == package.parent or Path(sysconfig.get_path("platlib")) == package.parent
    for place in [scripts / "motu"] if ours else [package.parent / "bin" / "motu"]:
        if place.is_file():
            return place
    return None


class Daemon:
    """Where a daemon is, and how one is started there."""

    def __init__(
        self,
        home: str | os.PathLike[str] | None = None,
        *,
        socket: str | os.PathLike[str] | None = None,
        url: str | None = None,
        binary: str | os.PathLike[str] | None = None,
    ) -> None:
        """With `socket` or `url` the daemon is somebody else's: it is never started."""
        if sum(one is not None for one in (home, socket, url)) > 1:
            raise errors.InvalidError("give a state directory, a socket or a url: one of them")
        self.url = url
        elsewhere = socket is not None or url is not None
        self.home: Path | None = None if elsewhere else Path(os.path.abspath(home or usual_home()))
        self.socket = Path(os.path.abspath(socket)) if socket is not None else Path(self.home or ".") / "daemon.sock"
        self._binary = binary
        self._directory: int | None = None

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return self.url or os.fspath(self.home or self.socket)

    def address(self) -> str:
        """A path of the socket that fits into an address."""
        path = os.fspath(self.socket)
        if len(os.fsencode(path)) < SUN_PATH_BYTES:
            return path
        if self._directory is None:
            if self.home is not None:
                self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
            # The kernel follows this link for as long as the directory is open.
            self._directory = os.open(self.socket.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._directory}/{self.socket.name}"

    def close(self) -> None:
        if self._directory is not None:
            os.close(self._directory)
            self._directory = None

    def binary(self) -> str:
        """The program `motu`: the one given, `MOTU_BINARY`, the one that was installed with this package, or the one
        on the `PATH`."""
        asked = self._binary or os.environ.get("MOTU_BINARY") or installed_binary()
        found = shutil.which(os.fspath(asked or "motu"))
        if found is None:
            raise errors.UnavailableError(
                f"the program {os.fspath(asked)} cannot be run" if asked else "there is no program motu on the PATH",
                hint="install motu, or say where it is with MOTU_BINARY",
            )
        # The daemon is started in another directory.
        return os.path.abspath(found)

    def start(self) -> None:
        """Starts a daemon and waits until it takes connections."""
        if self.home is None:
            raise errors.UnavailableError(f"no daemon answers at {self.socket}")
        binary = self.binary()
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        ours, theirs = os.pipe()
        try:
            try:
                self._spawn(binary, theirs)
            finally:
                os.close(theirs)
            answer = self._hear(ours)
        finally:
            os.close(ours)
        if answer != b"ready":
            raise self._reason(answer)

    def _spawn(self, binary: str, ready: int) -> None:
        assert self.home is not None
        log = os.open(self.home / "daemon.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            process = subprocess.Popen(
                [binary, "serve", "--on-demand", "--home", os.fspath(self.home)],
                stdin=ready,
                stdout=log,
                stderr=log,
                cwd="/",
                env={name: value for name, value in os.environ.items() if kept(name)},
                start_new_session=True,
            )
        except OSError as error:
            raise errors.UnavailableError(f"cannot start {binary}: {error}") from error
        finally:
            os.close(log)
        # The daemon may end long before this program does; nobody else would reap it.
        threading.Thread(target=process.wait, name="motu-daemon", daemon=True).start()

    def _hear(self, pipe: int) -> bytes:
        answer = b""
        end = time.monotonic() + START_SECONDS
        while len(answer) < ANSWER_BYTES:
            readable, _, _ = select.select([pipe], [], [], max(0.0, end - time.monotonic()))
            if not readable:
                raise errors.UnavailableError(
                    f"the daemon has not become ready in {START_SECONDS:.0f} s", hint=self._log_hint()
                )
            piece = os.read(pipe, 4096)
            if not piece:
                break
            answer += piece
        return answer

    def _reason(self, answer: bytes) -> errors.MotuError:
        try:
            return errors.from_wire(json.loads(answer))
        except ValueError:
            return errors.UnavailableError("the daemon ended while it started", hint=self._log_hint())

    def _log_hint(self) -> str:
        return f"its log is {self.home}/daemon.log"


def kept(name: str) -> bool:
    return name.startswith("MOTU_") or name.upper() in KEPT


def usual_home() -> str:
    """`MOTU_HOME`, or the state directory of this user."""
    if home := os.environ.get("MOTU_HOME"):
        return home
    if os.geteuid() == 0:
        return "/var/lib/motu"
    if state := os.environ.get("XDG_STATE_HOME"):
        return os.path.join(state, "motu")
    if user := os.environ.get("HOME"):
        return os.path.join(user, ".local/state/motu")
    raise errors.InvalidError("no state directory is known", hint="set MOTU_HOME")
