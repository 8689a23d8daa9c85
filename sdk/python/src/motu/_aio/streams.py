"""Answers that come bit by bit: lines, output with input, plain connections."""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Generic, TypeVar

import httpx2
from httpx2 import websockets

from .. import errors, types
from .._frames import MAX_PAYLOAD, Decoder, Output, Position, StreamEvent, control, pieces
from .._shape import is_object
from .._tasks import async_sleep

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


class AsyncLines(Generic[T]):
    """Values as they come, one per line. Close it, or use it in a `with`, when you leave before the end."""

    def __init__(self, response: httpx2.Response, read: Callable[[dict[str, Any]], T]) -> None:
        self._response = response
        self._chunks = response.aiter_raw()
        self._read = read
        self._buffer = bytearray()

    async def __aenter__(self) -> AsyncLines[T]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncLines[T]:
        return self

    async def __anext__(self) -> T:
        while True:
            line = await self._line()
            if line is None:
                await self.aclose()
                raise StopAsyncIteration
            if line.strip():
                return self._value(line)

    async def _line(self) -> bytes | None:
        while (end := self._buffer.find(b"\n")) < 0:
            try:
                self._buffer += await anext(self._chunks)
            except StopAsyncIteration:
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

    async def aclose(self) -> None:
        await self._response.aclose()


class Carrier:
    """What frames travel over."""

    async def receive(self) -> bytes | None:
        """The next bytes; `None` at the end. A connection that breaks raises `TransportError`."""
        raise NotImplementedError

    async def send(self, data: bytes) -> None:
        raise errors.InvalidError("this stream has no input", hint="attach without `_output`")

    async def aclose(self) -> None:
        raise NotImplementedError


class BodyCarrier(Carrier):
    """The body of an answer."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self._chunks = response.aiter_raw()

    async def receive(self) -> bytes | None:
        try:
            return await anext(self._chunks)
        except StopAsyncIteration:
            return None
        except httpx2.HTTPError as error:
            raise broken(error) from error

    async def aclose(self) -> None:
        await self._response.aclose()


class SocketCarrier(Carrier):
    """A WebSocket; each binary message is one frame."""

    def __init__(self, stack: contextlib.AsyncExitStack, session: websockets.AsyncWebSocketSession) -> None:
        self._stack = stack
        self._session = session

    @classmethod
    async def over(cls, response: httpx2.Response) -> SocketCarrier:
        stack = contextlib.AsyncExitStack()
        stack.push_async_callback(response.aclose)
        session = websockets.AsyncWebSocketSession(
            response.extensions["network_stream"],
            max_message_size_bytes=2 * MAX_PAYLOAD,
            # A machine may be busy for longer than any ping may take; the daemon's end closes the socket.
            keepalive_ping_interval_seconds=None,
            response=response,
        )
        await stack.enter_async_context(session)
        return cls(stack, session)

    async def receive(self) -> bytes | None:
        try:
            return await self._session.receive_bytes()
        except websockets.WebSocketDisconnect as error:
            if error.code in (1000, 1001, 1005):
                return None
            raise errors.TransportError(f"the connection to the daemon broke: {error.code} {error.reason}") from error
        except websockets.HTTPXWSException as error:
            raise broken(error) from error

    async def send(self, data: bytes) -> None:
        try:
            await self._session.send_bytes(data)
        except websockets.HTTPXWSException as error:
            raise broken(error) from error

    async def send_text(self, text: str) -> None:
        await self._session.send_text(text)

    async def aclose(self) -> None:
        with contextlib.suppress(websockets.HTTPXWSException, httpx2.HTTPError):
            await self._stack.aclose()


Reopen = Callable[[int | None, int | None], Awaitable[Carrier]]


class AsyncStream:
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

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncStream:
        return self

    async def __anext__(self) -> StreamEvent:
        while True:
            frame = self._decoder.next()
            if frame is not None:
                event = self._position.take(*frame)
                if event is not None:
                    self._vain = 0
                    return event
            elif self._position.exited is not None or not await self._more():
                raise StopAsyncIteration

    async def _more(self) -> bool:
        """Gets more bytes; false at the end."""
        if self._closed:
            return False
        try:
            data = await self._carrier.receive()
        except errors.TransportError as error:
            await self._again(error)
            return True
        if data is not None:
            self._decoder.push(data)
            return True
        if self.reopen is None:
            return False
        # The end of a process is told before its stream ends.
        await self._again(errors.TransportError("the stream ended before the process did"))
        return True

    async def _again(self, reason: errors.TransportError) -> None:
        """Goes on with another connection, at the byte after the last whole frame."""
        if self.reopen is None or self._closed or self._vain >= RECONNECTIONS:
            raise reason
        await self._carrier.aclose()
        if self._vain:
            await async_sleep(PAUSE * self._vain)
        self._vain += 1
        self._decoder = Decoder()
        at = (self._position.stdout, self._position.stderr) if self._position.started else (None, None)
        self._carrier = await self.reopen(*at)

    async def write(self, data: bytes | str) -> None:
        """Types into its standard input."""
        for piece in pieces(data.encode() if isinstance(data, str) else data):
            await self._carrier.send(piece)

    async def close_stdin(self) -> None:
        await self._carrier.send(control({"type": "close_stdin"}))

    async def resize(self, cols: int, rows: int) -> None:
        """Changes the size of its terminal."""
        await self._carrier.send(control({"type": "resize", "cols": cols, "rows": rows}))

    async def signal(self, number: int) -> None:
        await self._carrier.send(control({"type": "signal", "signal": number}))

    async def read(self) -> tuple[bytes, bytes]:
        """Everything it writes until it ends: standard output and standard error."""
        stdout, stderr = bytearray(), bytearray()
        async for event in self:
            if isinstance(event, Output):
                (stdout if event.channel == "stdout" else stderr).extend(event.data)
        return bytes(stdout), bytes(stderr)

    async def wait(self) -> types.Exited:
        """Reads on until it has ended, and says how."""
        async for _ in self:
            pass
        if self._position.exited is None:
            raise errors.TransportError("the stream ended before the process did")
        return self._position.exited

    async def aclose(self) -> None:
        """Leaves. A command that began with the stream ends; anything else runs on."""
        self._closed = True
        await self._carrier.aclose()


class AsyncConnection:
    """Plain bytes to and from a port or a socket in a machine."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self._stream = response.extensions["network_stream"]

    async def __aenter__(self) -> AsyncConnection:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def read(self, max_bytes: int = 65_536, *, timeout_seconds: float | None = None) -> bytes:
        """The next bytes; none at the end."""
        try:
            data: bytes = await self._stream.read(max_bytes, timeout=timeout_seconds)
        except Exception as error:
            raise connection_error(error) from error
        return data

    async def write(self, data: bytes, *, timeout_seconds: float | None = None) -> None:
        try:
            await self._stream.write(data, timeout=timeout_seconds)
        except Exception as error:
            raise connection_error(error) from error

    async def aclose(self) -> None:
        await self._stream.aclose()
        await self._response.aclose()


def connection_error(error: Exception) -> errors.MotuError:
    """Errors of the library below httpx2 have no public base but their names."""
    if isinstance(error, TimeoutError) or "Timeout" in type(error).__name__:
        return errors.TimedOutError("nothing came in time")
    return broken(error)
