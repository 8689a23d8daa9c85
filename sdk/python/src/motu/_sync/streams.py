# Written by generate.py; change that, or what it reads.
"""Answers that come bit by bit: lines, output with input, plain connections."""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, TypeVar

import httpx2
from httpx2 import websockets

from .. import errors, types
from .._frames import MAX_PAYLOAD, Decoder, Output, Position, StreamEvent, control, pieces
from .._shape import is_object
from .._tasks import sync_sleep

T = TypeVar("T")

#: The longest line of an answer.
LINE_BYTES = 16 << 20
#: Reconnections without anything new before a stream gives up, and the pause before the second, in seconds.
RECONNECTIONS = 8
PAUSE = 0.05


def upgrade(protocol: str) -> dict[str, str]:
    """The headers that ask for another protocol."""
    headers = {"connection": "upgrade", "upgrade": protocol}
    if protocol == "websocket":
        headers["sec-websocket-key"] = base64.b64encode(secrets.token_bytes(16)).decode()
        headers["sec-websocket-version"] = "13"
    return headers


def broken(error: Exception) -> errors.TransportError:
    return errors.TransportError(f"the connection to the daemon broke: {error}")


class Lines(Generic[T]):
    """Values as they come, one per line. Close it, or use it in a `with`, when you leave before the end."""

    def __init__(self, response: httpx2.Response, read: Callable[[dict[str, Any]], T]) -> None:
        self._response = response
        self._chunks = response.iter_raw()
        self._read = read
        self._buffer = bytearray()

    def __enter__(self) -> Lines[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Lines[T]:
        return self

    def __next__(self) -> T:
        while True:
            line = self._line()
            if line is None:
                self.close()
                raise StopIteration
            if line.strip():
                return self._value(line)

    def _line(self) -> bytes | None:
        while (end := self._buffer.find(b"\n")) < 0:
            try:
                self._buffer += next(self._chunks)
            except StopIteration:
                end = len(self._buffer) - 1
                if end < 0:
                    return None
                break
            except httpx2.HTTPError as error:
                raise broken(error) from error
            if len(self._buffer) > LINE_BYTES:
                raise errors.TransportError(f"a line of the answer is longer than {LINE_BYTES} bytes")
        line = bytes(self._buffer[: end + 1])
        del self._buffer[: end + 1]
        return line

    def _value(self, line: bytes) -> T:
        try:
            value = json.loads(line)
        except ValueError as error:
            raise errors.TransportError(f"a line of the answer cannot be read: {error}") from error
        if not is_object(value):
            raise errors.TransportError("a line of the answer is no object")
        failure = value.get("error")
        if is_object(failure) and "kind" in failure:
            raise errors.from_wire(failure)
        return self._read(dict(value))

    def close(self) -> None:
        self._response.close()


class Carrier:
    """What frames travel over."""

    def receive(self) -> bytes | None:
        """The next bytes; `None` at the end. A connection that breaks raises `TransportError`."""
        raise NotImplementedError

    def send(self, data: bytes) -> None:
        raise errors.InvalidError("this stream has no input", hint="attach without `_output`")

    def close(self) -> None:
        raise NotImplementedError


class BodyCarrier(Carrier):
    """The body of an answer."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self._chunks = response.iter_raw()

    def receive(self) -> bytes | None:
        try:
            return next(self._chunks)
        except StopIteration:
            return None
        except httpx2.HTTPError as error:
            raise broken(error) from error

    def close(self) -> None:
        self._response.close()


class SocketCarrier(Carrier):
    """A WebSocket; each binary message is one frame."""

    def __init__(self, stack: contextlib.ExitStack, session: websockets.WebSocketSession) -> None:
        self._stack = stack
        self._session = session

    @classmethod
    def over(cls, response: httpx2.Response) -> SocketCarrier:
        stack = contextlib.ExitStack()
        stack.callback(response.close)
        session = websockets.WebSocketSession(
            response.extensions["network_stream"],
            max_message_size_bytes=2 * MAX_PAYLOAD,
            # A machine may be busy for longer than any ping may take; the daemon's end closes the socket.
            keepalive_ping_interval_seconds=None,
            response=response,
        )
        stack.enter_context(session)
        return cls(stack, session)

    def receive(self) -> bytes | None:
        try:
            return self._session.receive_bytes()
        except websockets.WebSocketDisconnect as error:
            if error.code in (1000, 1001, 1005):
                return None
            raise errors.TransportError(f"the connection to the daemon broke: {error.code} {error.reason}") from error
        except websockets.HTTPXWSException as error:
            raise broken(error) from error

    def send(self, data: bytes) -> None:
        try:
            self._session.send_bytes(data)
        except websockets.HTTPXWSException as error:
            raise broken(error) from error

    def send_text(self, text: str) -> None:
        self._session.send_text(text)

    def close(self) -> None:
        with contextlib.suppress(websockets.HTTPXWSException, httpx2.HTTPError):
            self._stack.close()


Reopen = Callable[[int | None, int | None], Carrier]


class Stream:
    """A process as it runs: iterate over what it writes and how it ends, and type into it.

    The stream of a process goes on at the next byte when the daemon was killed and is there again.
    """

    def __init__(self, carrier: Carrier, reopen: Reopen | None) -> None:
        self.reopen = reopen
        self._carrier = carrier
        self._decoder = Decoder()
        self._position = Position()
        self._vain = 0
        self._closed = False

    @property
    def started(self) -> types.Started | None:
        """Its pid and tag, once they were told."""
        return self._position.started

    @property
    def exited(self) -> types.Exited | None:
        """How it ended, once it has."""
        return self._position.exited

    @property
    def sandbox(self) -> types.Sandbox | None:
        """The machine, where the stream tells it."""
        return self._position.sandbox

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> StreamEvent:
        while True:
            frame = self._decoder.next()
            if frame is not None:
                event = self._position.take(*frame)
                if event is not None:
                    self._vain = 0
                    return event
            elif self._position.exited is not None or not self._more():
                raise StopIteration

    def _more(self) -> bool:
        """Gets more bytes; false at the end."""
        if self._closed:
            return False
        try:
            data = self._carrier.receive()
        except errors.TransportError as error:
            self._again(error)
            return True
        if data is not None:
            self._decoder.push(data)
            return True
        if self.reopen is None:
            return False
        # The end of a process is told before its stream ends.
        self._again(errors.TransportError("the stream ended before the process did"))
        return True

    def _again(self, reason: errors.TransportError) -> None:
        """Goes on with another connection, at the byte after the last whole frame."""
        if self.reopen is None or self._closed or self._vain >= RECONNECTIONS:
            raise reason
        self._carrier.close()
        if self._vain:
            sync_sleep(PAUSE * self._vain)
        self._vain += 1
        self._decoder = Decoder()
        at = (self._position.stdout, self._position.stderr) if self._position.started else (None, None)
        self._carrier = self.reopen(*at)

    def write(self, data: bytes | str) -> None:
        """Types into its standard input."""
        for piece in pieces(data.encode() if isinstance(data, str) else data):
            self._carrier.send(piece)

    def close_stdin(self) -> None:
        self._carrier.send(control({"type": "close_stdin"}))

    def resize(self, cols: int, rows: int) -> None:
        """Changes the size of its terminal."""
        self._carrier.send(control({"type": "resize", "cols": cols, "rows": rows}))

    def signal(self, number: int) -> None:
        self._carrier.send(control({"type": "signal", "signal": number}))

    def read(self) -> tuple[bytes, bytes]:
        """Everything it writes until it ends: standard output and standard error."""
        stdout, stderr = bytearray(), bytearray()
        for event in self:
            if isinstance(event, Output):
                (stdout if event.channel == "stdout" else stderr).extend(event.data)
        return bytes(stdout), bytes(stderr)

    def wait(self) -> types.Exited:
        """Reads on until it has ended, and says how."""
        for _ in self:
            pass
        if self._position.exited is None:
            raise errors.TransportError("the stream ended before the process did")
        return self._position.exited

    def close(self) -> None:
        """Leaves. A command that began with the stream ends; anything else runs on."""
        self._closed = True
        self._carrier.close()


class Connection:
    """Plain bytes to and from a port or a socket in a machine."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self._stream = response.extensions["network_stream"]

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def read(self, max_bytes: int = 65_536, *, timeout_seconds: float | None = None) -> bytes:
        """The next bytes; none at the end."""
        try:
            data: bytes = self._stream.read(max_bytes, timeout=timeout_seconds)
        except Exception as error:
            raise connection_error(error) from error
        return data

    def write(self, data: bytes, *, timeout_seconds: float | None = None) -> None:
        try:
            self._stream.write(data, timeout=timeout_seconds)
        except Exception as error:
            raise connection_error(error) from error

    def close(self) -> None:
        self._stream.close()
        self._response.close()


def connection_error(error: Exception) -> errors.MotuError:
    """Errors of the library below httpx2 have no public base but their names."""
    if isinstance(error, TimeoutError) or "Timeout" in type(error).__name__:
        return errors.TimedOutError("nothing came in time")
    return broken(error)
