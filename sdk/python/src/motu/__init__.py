"""An isolated machine for every AI agent.

`Motu` and `AsyncMotu` have every verb of the API; `Sandbox` and `AsyncSandbox` are one machine each.
"""

from __future__ import annotations

from . import errors, types
from ._aio.client import AsyncMotu
from ._aio.sandbox import AsyncSandbox
from ._aio.streams import AsyncConnection, AsyncLines, AsyncStream
from ._frames import Output, StreamEvent
from ._sync.client import Motu
from ._sync.sandbox import Sandbox
from ._sync.streams import Connection, Lines, Stream
from ._wire import to_dict
from .errors import (
    CleanupError,
    ConflictError,
    DeniedError,
    InternalError,
    InvalidError,
    LimitError,
    MotuError,
    NoSuchFileError,
    NoSuchUserError,
    NotFoundError,
    PathDeniedError,
    PathExistsError,
    PathIsADirectoryError,
    PathNotADirectoryError,
    TimedOutError,
    TransportError,
    UnauthenticatedError,
    UnavailableError,
    UnsupportedError,
)
from .network import NetworkInfo, NetworkPolicy
from .server import Server, create_server

__version__ = "0.1.0"

__all__ = [
    "AsyncConnection",
    "AsyncLines",
    "AsyncMotu",
    "AsyncSandbox",
    "AsyncStream",
    "CleanupError",
    "ConflictError",
    "Connection",
    "DeniedError",
    "InternalError",
    "InvalidError",
    "LimitError",
    "Lines",
    "Motu",
    "MotuError",
    "NetworkInfo",
    "NetworkPolicy",
    "NoSuchFileError",
    "NoSuchUserError",
    "NotFoundError",
    "Output",
    "PathDeniedError",
    "PathExistsError",
    "PathIsADirectoryError",
    "PathNotADirectoryError",
    "Sandbox",
    "Server",
    "Stream",
    "StreamEvent",
    "TimedOutError",
    "TransportError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnsupportedError",
    "create_server",
    "errors",
    "to_dict",
    "types",
]
