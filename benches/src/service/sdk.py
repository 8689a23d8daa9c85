"""The same calls with the SDK and over a plain socket, in turns: medians in milliseconds.

    python sdk.py SOCKET SANDBOX
"""

from __future__ import annotations

import asyncio
import json
import socket
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from motu import AsyncMotu, Motu

ROUNDS = 400
WARM = 40


class Raw:
    """One kept connection. The request is made once, and its answer is read as JSON."""

    def __init__(self, place: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(place)
        self.file = self.socket.makefile("rb")

    def call(self, request: bytes) -> Any:
        self.socket.sendall(request)
        status = self.file.readline()
        length = 0
        while (line := self.file.readline()) != b"\r\n":
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        answer = json.loads(self.file.read(length))
        assert status.split()[1] == b"200", (status, answer)
        return answer


def request(method: str, path: str, body: Any = None) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nhost: motu\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    return head.encode() + content


def took(work: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1e3


def compare(sdk: Callable[[], Any], raw: Callable[[], Any]) -> dict[str, float]:
    pairs = [(took(sdk), took(raw)) for _ in range(WARM + ROUNDS)][WARM:]
    return {
        "sdk_ms": statistics.median(one for one, _ in pairs),
        "raw_ms": statistics.median(one for _, one in pairs),
    }


def main() -> None:
    place, sandbox = sys.argv[1:]
    plain = Raw(place)
    look = request("GET", f"/v1/sandboxes/{sandbox}")
    run = request("POST", f"/v1/sandboxes/{sandbox}/exec", {"command": ["true"]})
    found = {}
    with Motu(socket=place) as motu:
        found["get_sandbox"] = compare(lambda: motu.get_sandbox(sandbox), lambda: plain.call(look))
        found["exec"] = compare(lambda: motu.exec(sandbox, ["true"]), lambda: plain.call(run))
    with asyncio.Runner() as loop:

        async def measured() -> None:
            async with AsyncMotu(socket=place) as motu:
                times = []
                for _ in range(WARM + ROUNDS):
                    begun = time.perf_counter()
                    await motu.exec(sandbox, ["true"])
                    times.append((time.perf_counter() - begun) * 1e3)
                found["async_exec"] = {
                    "sdk_ms": statistics.median(times[WARM:]),
                    "raw_ms": statistics.median(took(lambda: plain.call(run)) for _ in range(ROUNDS)),
                }

        loop.run(measured())
    print(json.dumps(found))


if __name__ == "__main__":
    main()
