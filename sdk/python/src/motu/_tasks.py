"""The few things that wait, for both kinds of callers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


async def async_sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


def sync_sleep(seconds: float) -> None:
    time.sleep(seconds)


async def async_apart(work: Callable[[], None]) -> None:
    """Does something that blocks, in a thread of its own."""
    await asyncio.to_thread(work)


def sync_apart(work: Callable[[], None]) -> None:
    work()
