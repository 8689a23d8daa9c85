"""Frames of a live stream: a byte for the kind, four for the length, the payload."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from . import errors, types
from ._wire import decode

HEADER = struct.Struct(">BI")
#: The longest payload there is.
MAX_PAYLOAD = 1 << 20
#: Input is cut into pieces of this size.
PIECE_BYTES = 1 << 18

JSON, DATA, STDERR = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Output:
    """Bytes that a process has written, and where they begin in all it has written there."""

    channel: Literal["stdout", "stderr"]
    data: bytes
    offset: int


#: What a stream brings.
StreamEvent = Output | types.Started | types.Gap | types.Exited | types.Sandbox


def frame(kind: int, payload: bytes) -> bytes:
    return HEADER.pack(kind, len(payload)) + payload


def control(message: dict[str, Any]) -> bytes:
    return frame(JSON, json.dumps(message).encode())


def pieces(data: bytes) -> Iterator[bytes]:
    """Standard input as frames."""
    for start in range(0, len(data), PIECE_BYTES):
        yield frame(DATA, data[start : start + PIECE_BYTES])


class Decoder:
    """Turns arriving bytes back into frames. It never holds more than one of them and what arrived with it."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def push(self, data: bytes) -> None:
        self._buffer += data

    def next(self) -> tuple[int, bytes] | None:
        """The next frame; `None` when more bytes are needed."""
        if len(self._buffer) < HEADER.size:
            return None
        kind, length = HEADER.unpack_from(self._buffer)
        if kind not in (JSON, DATA, STDERR) or length > MAX_PAYLOAD:
            raise errors.TransportError(f"the stream holds a frame of kind {kind} and {length} bytes")
        end = HEADER.size + length
        if len(self._buffer) < end:
            return None
        payload = bytes(self._buffer[HEADER.size : end])
        del self._buffer[:end]
        return kind, payload


class Position:
    """What a stream has brought so far: enough to go on at the next byte."""

    def __init__(self) -> None:
        self.sandbox: types.Sandbox | None = None
        self.started: types.Started | None = None
        self.exited: types.Exited | None = None
        self.stdout = 0
        self.stderr = 0

    def take(self, kind: int, payload: bytes) -> StreamEvent | None:
        """What a frame means; `None` when it is nothing new."""
        if kind == DATA:
            self.stdout += len(payload)
            return Output("stdout", payload, self.stdout - len(payload))
        if kind == STDERR:
            self.stderr += len(payload)
            return Output("stderr", payload, self.stderr - len(payload))
        try:
            message = json.loads(payload)
            word = message["type"]
        except (ValueError, KeyError, TypeError) as error:
            raise errors.TransportError("the stream holds a message that cannot be read") from error
        return self._message(word, message)

    def _message(self, word: object, message: dict[str, Any]) -> StreamEvent | None:
        if word == "error":
            raise errors.from_wire(message)
        if word == "sandbox":
            self.sandbox = decode(types.Sandbox, message)
            return self.sandbox
        if word == "exited":
            self.exited = decode(types.Exited, message)
            return self.exited
        if word == "gap":
            gap = decode(types.Gap, message)
            if gap.channel == "stdout":
                self.stdout = gap.to
            else:
                self.stderr = gap.to
            return gap
        if word == "started":
            again = self.started is not None
            self.started = decode(types.Started, message)
            self.stdout, self.stderr = self.started.stdout_from, self.started.stderr_from
            return None if again else self.started
        # A newer daemon may tell more.
        return None
