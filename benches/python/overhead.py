#!/usr/bin/env python3
"""What the Python SDK adds to a call: the same request over a bare socket, and with each client, in turns.

    MOTU_BINARY=target/release/motu PYTHONPATH=sdk/python/src python3 benches/python/overhead.py [CALLS]

The state directory is a new one; no machine is made. The request is `GET /v1/version`, which costs the daemon least.
Beside the time on the clock, which counts and which neighbours on the machine prolong, stands the time of the
processor that this program itself has used.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from motu import AsyncMotu, Motu, to_dict

#: Of one call, in milliseconds.
WANTED_MS = 1.0
ROUNDS = 5


class Local(http.client.HTTPConnection):
    """Python's own client on a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("motu")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))


def bare(path: Path) -> Callable[[], object]:
    """A request in one write and an answer in as few reads as it takes, on a connection that stays."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(path))
    request = b"GET /v1/version HTTP/1.1\r\nhost: motu\r\n\r\n"

    def call() -> object:
        connection.sendall(request)
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += connection.recv(65_536)
        head, _, body = answer.partition(b"\r\n\r\n")
        length = int(next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))[15:])
        while len(body) < length:
            body += connection.recv(65_536)
        return json.loads(body)

    return call


def library(path: Path) -> Callable[[], object]:
    connection = Local(path)

    def call() -> object:
        connection.request("GET", "/v1/version")
        return json.loads(connection.getresponse().read())

    return call


Times = list[tuple[float, float]]


def times(call: Callable[[], object], calls: int) -> Times:
    """Of each call: milliseconds on the clock, and of the processor."""
    found: Times = []
    for _ in range(calls):
        begun, used = time.perf_counter(), time.process_time()
        call()
        found.append(((time.perf_counter() - begun) * 1000, (time.process_time() - used) * 1000))
    return found


def measure(home: Path, calls: int) -> dict[str, Times]:
    with Motu(home) as motu, asyncio.Runner() as runner:
        answer = to_dict(motu.version())
        path = home / "daemon.sock"
        client = AsyncMotu(home)
        contenders: dict[str, Callable[[], object]] = {
            "bare socket": bare(path),
            "http.client": library(path),
            "Motu": motu.version,
            "AsyncMotu": lambda: runner.run(client.version()),
        }
        assert contenders["bare socket"]() == contenders["http.client"]() == answer
        found: dict[str, Times] = {name: [] for name in contenders}
        for _ in range(ROUNDS):
            for name, call in contenders.items():
                found[name] += times(call, calls // ROUNDS)
        runner.run(client.aclose())
        binary = motu.create_server().command[0]
    subprocess.run([binary, "--home", str(home), "serve", "--stop"], check=True)
    return found


def main() -> int:
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    home = Path(tempfile.mkdtemp(prefix="motu-overhead-"))
    try:
        found = measure(home, calls)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    medians = {name: [statistics.median(column) for column in zip(*each)] for name, each in found.items()}
    base = medians["bare socket"]
    print(f"medians of {calls} calls, in ms")
    print(f"{'client':<12} {'clock':>8} {'more':>8} {'processor':>10} {'more':>8}")
    for name, (clock, used) in medians.items():
        print(f"{name:<12} {clock:>8.3f} {clock - base[0]:>8.3f} {used:>10.3f} {used - base[1]:>8.3f}")
    worst = max(clock - base[0] for clock, _ in medians.values())
    print(f"wanted: at most {WANTED_MS} ms more on the clock; {'kept' if worst <= WANTED_MS else 'MISSED'}")
    return 0 if worst <= WANTED_MS else 1


if __name__ == "__main__":
    sys.exit(main())
