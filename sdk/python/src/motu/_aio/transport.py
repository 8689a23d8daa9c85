"""Requests to the daemon, and what becomes of them when it goes away.

A daemon that was killed keeps its socket for a moment: connections are taken by the kernel and
reset unread. Such a request is sent again, to the daemon that comes next, but only when nobody can
have acted on it: when it only asks, or when the connection was reset before any answer, which means
that part of the request was never read.
"""

from __future__ import annotations

import errno
import json
import os
import ssl
import threading
from collections.abc import AsyncIterable, Callable, Mapping
from functools import lru_cache
from ipaddress import ip_address
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2

from .. import errors
from .._daemon import Daemon
from .._tasks import async_apart, async_sleep
from .._wire import decode, query
from .streams import AsyncConnection, AsyncLines, AsyncStream, BodyCarrier, SocketCarrier, upgrade

T = TypeVar("T")
Self = TypeVar("Self", bound="AsyncTransport")

#: Daemons tried for one request; each but the last was dying.
ATTEMPTS = 8
#: The pause after the first of them, in seconds, which doubles.
PAUSE = 0.005
#: How long a connection is kept for the next call; the daemon closes silent ones after 30 seconds.
KEPT_SECONDS = 5.0
#: How long the kernel may take to connect.
CONNECT_SECONDS = 10.0
API_VERSION = "1"
#: The name of a daemon that is reached over its socket.
LOCAL = "http://motu"
STREAM = "application/vnd.motu.stream"

#: What a request may bring along besides JSON.
AsyncContent = bytes | AsyncIterable[bytes]
Fields = Mapping[str, Any]


@lru_cache(maxsize=1024)
def address(base: str, path: str) -> httpx2.URL:
    """The whole address of a path. Reading one takes longer than sending it, and most are used again."""
    return httpx2.URL(base.rstrip("/") + path)


class AsyncTransport:
    """Calls the daemon of a state directory, which is started if it is not there."""

    def __init__(
        self,
        home: str | os.PathLike[str] | None = None,
        *,
        socket: str | os.PathLike[str] | None = None,
        url: str | None = None,
        key: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        binary: str | os.PathLike[str] | None = None,
        timeout_seconds: float | None = None,
    ) -> None:
        """`home` is the state directory: `MOTU_HOME`, or the usual place of this user, when missing.

        With `socket`, the socket of a daemon that is there already, none is started. With `url` the daemon is on
        another host, and `key` says who calls; `ca_file` has the certificates that its own is checked against, in
        the place of those that this host trusts. Without any of them, `MOTU_URL` and `MOTU_KEY` are taken.
        `timeout_seconds` bounds how long an answer may stay silent; without it a call takes as long as the daemon
        works on it. Streams have no such bound.
        """
        if home is None and socket is None:
            url = url or os.environ.get("MOTU_URL") or None
        if url is not None:
            key = key or os.environ.get("MOTU_KEY") or None
        check_url(url, key, ca_file)
        self._daemon = Daemon(home, socket=socket, url=url, binary=binary)
        self._key, self._ca_file = key, ca_file
        self._timeout = httpx2.Timeout(timeout_seconds, connect=CONNECT_SECONDS)
        # Threads may share a client; nothing is awaited under the lock.
        self._opening = threading.Lock()
        self._opened: httpx2.AsyncClient | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._daemon.place!r})"

    async def __aenter__(self: Self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections. The daemon and all machines stay."""
        self._closed = True
        if self._opened is not None:
            await self._opened.aclose()
            self._opened = None
        self._daemon.close()

    def _http(self) -> httpx2.AsyncClient:
        with self._opening:
            if self._closed:
                raise errors.InvalidError("this client is closed")
            if self._opened is None:
                limits = httpx2.Limits(
                    max_connections=None, max_keepalive_connections=16, keepalive_expiry=KEPT_SECONDS
                )
                if self._daemon.url is None:
                    transport = httpx2.AsyncHTTPTransport(uds=self._daemon.address(), limits=limits)
                else:
                    transport = httpx2.AsyncHTTPTransport(verify=trusted(self._ca_file), limits=limits)
                self._opened = httpx2.AsyncClient(
                    transport=transport,
                    headers={"authorization": f"Bearer {self._key}"} if self._key else None,
                    timeout=self._timeout,
                    trust_env=False,
                )
                for unneeded in ("accept", "accept-encoding", "connection"):
                    # Each costs a check in every request, and says what is so without it.
                    del self._opened.headers[unneeded]
            return self._opened

    async def _send(
        self,
        method: str,
        path: str,
        *,
        params: Fields | None = None,
        body: Fields | None = None,
        content: AsyncContent | None = None,
        headers: Mapping[str, str] | None = None,
        endless: bool = False,
    ) -> httpx2.Response:
        """Sends a request and reads the head of its answer, which the caller closes. Failures are raised.

        The answer may be silent for as long as it likes when it is `endless`.
        """
        fixed = content is None or isinstance(content, bytes)
        if not fixed and self._daemon.home is not None:
            # What comes in pieces cannot be sent twice, so a daemon must have answered just now.
            await self._text("GET", "/v1/version")
        head = dict(headers or {})
        if body is not None:
            content = json.dumps(body).encode()
            head["content-type"] = "application/json"
        http = self._http()
        timeout = httpx2.Timeout(None, connect=CONNECT_SECONDS) if endless else self._timeout
        url = address(self._daemon.url or LOCAL, path)
        request = http.build_request(
            method, url, params=query(params or {}) or None, content=content, headers=head, timeout=timeout
        )
        pause, left = PAUSE, ATTEMPTS
        while True:
            left -= 1
            try:
                response = await http.send(request, stream=True)
                break
            except httpx2.ConnectError as error:
                if not nobody_there(error) or left <= 0 or self._daemon.home is None:
                    raise unreachable(self._daemon, error) from error
                absent = True
            except httpx2.TimeoutException as error:
                raise errors.TimedOutError("the daemon has not answered in time") from error
            except httpx2.TransportError as error:
                if left <= 0 or not fixed or not (method == "GET" or was_reset(error)):
                    raise broken(error) from error
                absent = False
            if absent:
                await async_apart(self._daemon.start)
            else:
                await async_sleep(pause)
                pause *= 2
        try:
            return await self._checked(response)
        except BaseException:
            await response.aclose()
            raise

    async def _checked(self, response: httpx2.Response) -> httpx2.Response:
        theirs = response.headers.get("motu-api")
        if theirs != API_VERSION:
            raise errors.UnavailableError(
                f"the daemon speaks version {theirs or 'unknown'} of the API, this package {API_VERSION}"
            )
        if response.status_code < 400:
            return response
        text = await read_all(response)
        try:
            raise errors.from_wire(json.loads(text))
        except ValueError:
            raise errors.TransportError(f"the daemon answered {response.status_code}") from None

    # What the generated verbs are made of: one way to ask for each kind of answer.

    async def _bytes(
        self,
        method: str,
        path: str,
        *,
        params: Fields | None = None,
        body: Fields | None = None,
        content: AsyncContent | None = None,
    ) -> bytes:
        left = ATTEMPTS
        while True:
            left -= 1
            response = await self._send(method, path, params=params, body=body, content=content)
            try:
                return await read_all(response)
            except errors.TransportError:
                # The daemon went away while it answered; what only asks may be asked again.
                if method != "GET" or left <= 0:
                    raise
            finally:
                await response.aclose()

    async def _text(self, method: str, path: str, *, params: Fields | None = None, body: Fields | None = None) -> str:
        return (await self._bytes(method, path, params=params, body=body)).decode("utf-8", "replace")

    async def _value(
        self,
        method: str,
        path: str,
        *,
        params: Fields | None = None,
        body: Fields | None = None,
        content: AsyncContent | None = None,
    ) -> Any:
        answer = await self._bytes(method, path, params=params, body=body, content=content)
        try:
            return json.loads(answer)
        except ValueError as error:
            raise errors.TransportError(f"the answer cannot be read: {error}") from error

    async def _json(
        self,
        kind: type[T],
        method: str,
        path: str,
        *,
        params: Fields | None = None,
        body: Fields | None = None,
        content: AsyncContent | None = None,
    ) -> T:
        return decode(kind, await self._value(method, path, params=params, body=body, content=content))

    async def _nothing(
        self,
        method: str,
        path: str,
        *,
        params: Fields | None = None,
        body: Fields | None = None,
        content: AsyncContent | None = None,
    ) -> None:
        await self._bytes(method, path, params=params, body=body, content=content)

    async def _lines(self, method: str, path: str, *, params: Fields | None = None) -> AsyncLines[dict[str, Any]]:
        return AsyncLines(await self._send(method, path, params=params, endless=True), as_it_is)

    async def _items(
        self, kind: type[T], field: str, method: str, path: str, *, params: Fields | None = None
    ) -> AsyncLines[T]:
        """Lines of which each holds one value in a field."""
        response = await self._send(method, path, params=params, endless=True)
        return AsyncLines(response, lambda line: decode(kind, line.get(field)))

    async def _last(
        self,
        kind: type[T],
        step: type[Any],
        progress: Callable[[Any], object] | None,
        method: str,
        path: str,
        *,
        body: Fields | None = None,
    ) -> T:
        """Lines that tell of progress and end in a result."""
        response = await self._send(method, path, body=body, endless=True)
        async with AsyncLines(response, as_it_is) as lines:
            async for line in lines:
                if "result" in line:
                    return decode(kind, line["result"])
                if progress is not None and "progress" in line:
                    progress(decode(step, line["progress"]))
        raise errors.TransportError("the answer ended without a result")

    async def _output(self, path: str, *, params: Fields | None = None, resume: bool = False) -> AsyncStream:
        """The output of something that runs, without input. With `resume` it goes on after the daemon was away."""

        async def opened(stdout: int | None, stderr: int | None) -> BodyCarrier:
            at = dict(params or {})
            if stdout is not None:
                at = {"stdout_from": stdout, "stderr_from": stderr}
            return BodyCarrier(await self._send("GET", path, params=at, headers={"accept": STREAM}, endless=True))

        return AsyncStream(await opened(None, None), opened if resume else None)

    async def _live(
        self, path: str, *, params: Fields | None = None, first: Fields | None = None, resume: bool = False
    ) -> AsyncStream:
        """A stream with input, over a WebSocket; `first` is its request."""

        async def opened(stdout: int | None, stderr: int | None) -> SocketCarrier:
            at = dict(params or {})
            if stdout is not None:
                at = {"stdout_from": stdout, "stderr_from": stderr}
            return await self._socket(path, at)

        carrier = await opened(None, None)
        if first is not None:
            await carrier.send_text(json.dumps(first))
        return AsyncStream(carrier, opened if resume else None)

    async def _command(self, path: str, *, first: Fields, sandbox_id: str) -> AsyncStream:
        """A command that begins with the stream. It is found again by its pid after the daemon was away."""
        stream = await self._live(path, first=first)

        async def again(stdout: int | None, stderr: int | None) -> SocketCarrier:
            started = stream.started
            if started is None:
                raise errors.TransportError("the connection to the daemon broke before the command had started")
            place = f"/v1/sandboxes/{sandbox_id}/processes/{started.pid}/stream/ws"
            return await self._socket(place, {"stdout_from": stdout, "stderr_from": stderr})

        stream.reopen = again
        return stream

    async def _socket(self, path: str, params: Fields) -> SocketCarrier:
        response = await self._send("GET", path, params=params, headers=upgrade("websocket"), endless=True)
        return await SocketCarrier.over(response)

    async def _dial(self, path: str, *, params: Fields | None = None) -> AsyncConnection:
        return AsyncConnection(
            await self._send("GET", path, params=params, headers=upgrade("motu-dial"), endless=True)
        )


async def read_all(response: httpx2.Response) -> bytes:
    try:
        return await response.aread()
    except httpx2.TimeoutException as error:
        raise errors.TimedOutError("the daemon has not answered in time") from error
    except httpx2.TransportError as error:
        raise broken(error) from error


def check_url(url: str | None, key: str | None, ca_file: str | os.PathLike[str] | None) -> None:
    """Refuses what could not be called, or would show the key to others."""
    if url is None:
        if key is not None or ca_file is not None:
            raise errors.InvalidError("a key and a ca_file go with a url")
        return
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise errors.InvalidError("a url is http:// or https://, a host and a port")
    if key is None:
        raise errors.InvalidError("a daemon at a url asks for a key", hint="give key, or set MOTU_KEY")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise errors.InvalidError(
            "the key would be sent in clear", hint="use https://, or a tunnel that ends on this host"
        )


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def trusted(ca_file: str | os.PathLike[str] | None) -> ssl.SSLContext:
    """Whose certificates are believed."""
    return ssl.create_default_context(cafile=None if ca_file is None else os.fspath(ca_file))


def as_it_is(line: dict[str, Any]) -> dict[str, Any]:
    return line


def numbers(error: BaseException) -> set[int]:
    """The error numbers of the system among the causes of an error."""
    found: set[int] = set()
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno is not None:
            found.add(cause.errno)
        cause = cause.__cause__ or cause.__context__
    return found


def nobody_there(error: BaseException) -> bool:
    """Whether a failed connection means that no daemon runs."""
    return not numbers(error).isdisjoint({errno.ENOENT, errno.ECONNREFUSED})


def was_reset(error: BaseException) -> bool:
    """Whether the other side went away without having read everything."""
    return not numbers(error).isdisjoint({errno.ECONNRESET, errno.EPIPE})


def broken(error: Exception) -> errors.TransportError:
    return errors.TransportError(
        f"the connection to the daemon broke: {error}", hint="daemon.log in the state directory may say why"
    )


def unreachable(daemon: Daemon, error: Exception) -> errors.UnavailableError:
    return errors.UnavailableError(f"cannot reach the daemon at {daemon.url or daemon.socket}: {error}")
