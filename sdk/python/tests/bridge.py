"""The asynchronous client behind the face of the synchronous one, so that one table can try both."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import queue
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

from motu import AsyncConnection, AsyncLines, AsyncMotu, AsyncSandbox, AsyncStream

WRAPPED = (AsyncMotu, AsyncSandbox, AsyncStream, AsyncLines, AsyncConnection)
Job = tuple[Coroutine[Any, Any, Any], "concurrent.futures.Future[Any]"]


class Loop:
    """One task, in a thread of its own, that awaits what it is given: what a task opens, it must close."""

    def __init__(self) -> None:
        self._jobs: queue.Queue[Job | None] = queue.Queue()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._work()))
        self._thread.start()

    async def _work(self) -> None:
        while (job := await asyncio.to_thread(self._jobs.get)) is not None:
            coroutine, future = job
            try:
                future.set_result(await coroutine)
            except BaseException as error:
                future.set_exception(error)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._jobs.put((coroutine, future))
        return future.result(timeout=600)

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join()


class Bridge:
    """Any object of the asynchronous client."""

    def __init__(self, loop: Loop, inner: Any) -> None:
        self._loop = loop
        self._inner = inner

    def _out(self, value: Any) -> Any:
        return Bridge(self._loop, value) if isinstance(value, WRAPPED) else value

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, "aclose" if name == "close" else name)
        if not callable(value):
            return value

        def call(*arguments: Any, **named: Any) -> Any:
            result = value(*arguments, **named)
            return self._out(self._loop.run(result) if inspect.iscoroutine(result) else result)

        return call

    def __enter__(self) -> Bridge:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run(self._inner.aclose())

    def __iter__(self) -> Iterator[Any]:
        while True:
            try:
                yield self._loop.run(step(self._inner))
            except EOFError:
                return


async def step(inner: Any) -> Any:
    try:
        return await anext(inner)
    except StopAsyncIteration:
        # A future cannot carry that one.
        raise EOFError from None
