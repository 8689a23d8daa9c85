"""Answers by index: `workspace["workspace_id"]`, with the names of the API, as a program finds them that reads JSON.

Names that other clients of the contract have for the same are understood too, and only here: what an answer has as
attributes, and as JSON, are the names of the API.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

#: A name beside those of the API, by the class of the answer; `""` is every class.
ALSO: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("", "vm_id"): lambda it: it["sandbox_id"] if "sandbox_id" in names(it) else it["workspace_id"],
    ("ExecResult", "execution_mode"): lambda it: "host_compat" if it.isolation == "none" else "guest_vsock",
    ("Snapshot", "snapshot"): lambda it: it,
    ("DiffReport", "text_patch"): lambda it: it.patch,
    ("DiffReport", "summary"): lambda it: {
        "added": it.added,
        "modified": it.modified,
        "deleted": it.deleted,
        "type_changed": it.type_changed,
        "total": len(it.entries),
    },
}


def names(it: Fields) -> dict[str, str]:
    """The attributes of an answer, by the names of the API."""
    return {str(one.metadata.get("wire", one.name)): one.name for one in fields(it)}  # type: ignore[arg-type]


class Fields:
    """An answer; its fields are attributes, and found by index."""

    __slots__ = ("_beside",)

    def __getitem__(self, name: str) -> Any:
        attribute = names(self).get(name)
        if attribute is not None:
            return getattr(self, attribute)
        beside: dict[str, Any] = getattr(self, "_beside", {})
        if name in beside:
            return beside[name]
        also = ALSO.get((type(self).__name__, name)) or ALSO.get(("", name))
        if also is None:
            raise KeyError(name)
        return also(self)

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name, self) is not self


T = TypeVar("T", bound=Fields)


def with_beside(answer: T, **beside: Any) -> T:
    """An answer that has something by index which the call knew and the daemon does not say again."""
    object.__setattr__(answer, "_beside", beside)
    return answer
