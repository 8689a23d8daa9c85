"""What can go wrong: one class per kind of the API's errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ._shape import is_object


class MotuError(Exception):
    """A call failed. A command that exits with another code than 0 is a result, not an error."""

    #: The kind, as it is on the wire.
    kind: ClassVar[str] = "internal"

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        next: Sequence[Mapping[str, Any]] = (),
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        #: The next step in words, if one is known.
        self.hint = hint
        #: The hint as data, if it names more than words: one object per step (docs/api.md).
        self.next: list[dict[str, Any]] = [dict(step) for step in next]
        #: Facts for a program: ids, limits, names.
        self.details: dict[str, Any] = dict(details or {})

    @property
    def reason(self) -> str | None:
        """What tells errors of one kind apart, such as `no_such_user`, where the daemon says it (docs/api.md)."""
        value = self.details.get("reason")
        return value if isinstance(value, str) else None

    @property
    def audit_id(self) -> str | None:
        """What the call is named in the audit log."""
        value = self.details.get("audit_id")
        return value if isinstance(value, str) else None

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InvalidError(MotuError):
    """The request itself is wrong; sending it again cannot help."""

    kind = "invalid"


class DeniedError(MotuError):
    """A policy or a permission forbids it."""

    kind = "denied"


class NotFoundError(MotuError):
    """The named thing does not exist."""

    kind = "not_found"


class ConflictError(MotuError):
    """It exists already, or is in a state that does not allow this."""

    kind = "conflict"


class UnauthenticatedError(MotuError):
    """Nobody knows who asks: the key is missing or not good."""

    kind = "unauthenticated"


class LimitError(MotuError):
    """A documented limit was reached."""

    kind = "limit"


class TimedOutError(MotuError, TimeoutError):
    """It took longer than it was allowed to."""

    kind = "timeout"


class UnavailableError(MotuError):
    """Something this needs is not there now: a runtime, a tool, the daemon."""

    kind = "unavailable"


class UnsupportedError(MotuError):
    """This motu or this runtime cannot do it at all."""

    kind = "unsupported"


class TransportError(MotuError):
    """The connection to the daemon or to a machine broke."""

    kind = "transport"


class CleanupError(MotuError):
    """The work was done, but something was left behind."""

    kind = "cleanup"


class InternalError(MotuError):
    """A bug of motu."""

    kind = "internal"


class NoSuchFileError(NotFoundError, FileNotFoundError):
    """There is nothing at this path of a machine."""


class NoSuchUserError(NotFoundError, LookupError):
    """The machine has no such user or group."""


class PathDeniedError(DeniedError, PermissionError):
    """The user may not do this with this path of a machine."""


class PathExistsError(ConflictError, FileExistsError):
    """There is something at this path of a machine already."""


class PathIsADirectoryError(InvalidError, IsADirectoryError):
    """It is a directory, and a file is needed."""


class PathNotADirectoryError(InvalidError, NotADirectoryError):
    """A part of the path, or all of it, is no directory."""


#: Classes of their own for what Python has a class for too, by the reason that the daemon gives.
BY_REASON: dict[str, type[MotuError]] = {
    "no_such_file": NoSuchFileError,
    "no_such_user": NoSuchUserError,
    "permission_denied": PathDeniedError,
    "file_exists": PathExistsError,
    "is_a_directory": PathIsADirectoryError,
    "not_a_directory": PathNotADirectoryError,
}

#: The class of each kind.
BY_KIND: dict[str, type[MotuError]] = {
    error.kind: error
    for error in (
        InvalidError,
        UnauthenticatedError,
        DeniedError,
        NotFoundError,
        ConflictError,
        LimitError,
        TimedOutError,
        UnavailableError,
        UnsupportedError,
        TransportError,
        CleanupError,
        InternalError,
    )
}


def from_wire(value: object) -> MotuError:
    """The error in the body of an answer; whatever else is there becomes a `TransportError`."""
    error = value.get("error", value) if is_object(value) else None
    if not is_object(error) or not isinstance(error.get("message"), str):
        return TransportError("the daemon answered with something that is no error of motu")
    details, hint = error.get("details"), error.get("hint")
    given: list[object] = error.get("next") or []
    steps = [step for step in given if is_object(step)]
    # A kind that this version does not know is still an error with a message.
    kind = BY_KIND.get(str(error.get("kind")), MotuError)
    reason = details.get("reason") if is_object(details) else None
    closer = BY_REASON.get(reason) if isinstance(reason, str) else None
    if closer is not None and issubclass(closer, kind):
        kind = closer
    return kind(
        error["message"],
        hint=_worded(steps) or hint,
        next=steps,
        details=details if is_object(details) else None,
    )


def _worded(steps: Sequence[Mapping[str, Any]]) -> str | None:
    """A hint in the words of this library: verbs are methods, fields are arguments."""
    words = [_said(step) for step in steps]
    return None if None in words else "".join(word for word in words if word)


def _said(step: Mapping[str, Any]) -> str | None:
    match step.get("type"):
        case "words":
            return str(step.get("text"))
        case "verb":
            arguments: dict[str, object] = step.get("arguments") or {}
            given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
            return f"`{step.get('verb')}()`" + (f" ({given})" if given else "")
        case "field":
            value = f"={step['value']!r}" if "value" in step else ""
            of = f" of `{step['verb']}()`" if "verb" in step else ""
            return f"`{step.get('field')}{value}`{of}"
        case "host":
            return f"`{step.get('command')}` (for the operator, on the host)"
        case "setting":
            return f"{step.get('key')} in the operator's config.toml"
        case _:
            # A step of a newer motu; its own words say it.
            return None
