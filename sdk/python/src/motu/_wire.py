"""Between values of Python and JSON.

Answers become the classes of `motu.types`; fields that this version does not know are left out, so
that a newer daemon can be talked to. Requests leave out what is `None`.
"""

from __future__ import annotations

import base64
import dataclasses
import os
import types as builtin
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import quote

from . import errors
from ._shape import is_list, is_object

T = TypeVar("T")
Read = Callable[[Any], Any]


def segment(value: object) -> str:
    """One segment of a path."""
    text = quote(str(value), safe="")
    if text in ("", ".", ".."):
        # Clients and servers take such segments away, and the call would mean something else.
        raise errors.InvalidError(f"{text!r} cannot be a name")
    return text


def encode(value: Any) -> Any:
    """A value for JSON."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return given({wire_name(one): getattr(value, one.name) for one in dataclasses.fields(value)})
    if is_object(value):
        return {str(name): encode(one) for name, one in value.items()}
    if is_list(value):
        return [encode(one) for one in value]
    if isinstance(value, os.PathLike):
        return os.fspath(typing.cast(os.PathLike[str], value))
    return value


def given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Those fields that were given."""
    return {name: encode(value) for name, value in fields.items() if value is not None}


def request(fields: Mapping[str, Any], *more: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a request: what was given, and what has its final form already."""
    body = given(fields)
    for one in more:
        body.update(one)
    return body


def path(name: str, value: str | bytes | os.PathLike[str] | None) -> dict[str, Any]:
    """A path in a machine, or input; what is not UTF-8 travels as base64."""
    if isinstance(value, bytes):
        return {f"{name}_base64": base64.b64encode(value).decode()}
    return {} if value is None else {name: os.fspath(value)}


def query(fields: Mapping[str, Any]) -> dict[str, str]:
    """Those fields that were given, as the query of an address."""
    words = {True: "true", False: "false"}
    return {
        name: words[value] if isinstance(value, bool) else str(value)
        for name, value in fields.items()
        if value is not None
    }


def wire_name(field: dataclasses.Field[Any]) -> str:
    return str(field.metadata.get("wire", field.name))


def to_dict(value: Any) -> Any:
    """An answer as plain dictionaries and lists, with the names of the API."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {wire_name(one): to_dict(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if is_object(value):
        return {name: to_dict(one) for name, one in value.items()}
    if is_list(value):
        return [to_dict(one) for one in value]
    return value.isoformat() if isinstance(value, datetime) else value


_readers: dict[Any, Read] = {}


def decode(kind: type[T], value: Any) -> T:
    """An answer of a kind."""
    try:
        result: T = reader(kind)(value)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise errors.TransportError(f"the answer is no {kind.__name__}: {error}") from error
    return result


def reader(kind: Any) -> Read:
    """What turns JSON into a value of this type; made once per type."""
    found = _readers.get(kind)
    if found is None:
        found = _readers[kind] = _make_reader(kind)
    return found


def _as_it_is(value: Any) -> Any:
    return value


def _make_reader(kind: Any) -> Read:
    if dataclasses.is_dataclass(kind):
        return _object_reader(typing.cast(type[Any], kind))
    if kind is datetime:
        return datetime.fromisoformat
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (list, Sequence):
        return _list_reader(inner[0])
    if origin in (dict, Mapping):
        return _map_reader(inner[1])
    if origin in (typing.Union, builtin.UnionType):
        return _union_reader([one for one in inner if one is not type(None)])
    return _as_it_is


def _list_reader(kind: Any) -> Read:
    item = reader(kind)
    return list if item is _as_it_is else lambda value: [item(one) for one in value]


def _map_reader(kind: Any) -> Read:
    item = reader(kind)
    return dict if item is _as_it_is else lambda value: {name: item(one) for name, one in value.items()}


def _union_reader(kinds: list[Any]) -> Read:
    if len(kinds) == 1:
        only = reader(kinds[0])
        return lambda value: None if value is None else only(value)
    if not all(dataclasses.is_dataclass(kind) for kind in kinds):
        return _as_it_is
    # The classes of a union differ in the constant of their field `type`.
    tagged = {kind.__dataclass_fields__["type"].default: kind for kind in kinds}
    # A class of a newer motu is the one called `unknown`, where there is one.
    rest = tagged.get("unknown")
    return lambda value: None if value is None else reader(tagged.get(value["type"], rest) or tagged[value["type"]])(value)


def _object_reader(kind: type[Any]) -> Read:
    hints = typing.get_type_hints(kind)
    plan: list[tuple[str, str, Read, bool]] = []
    for one in dataclasses.fields(kind):
        needed = one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
        plan.append((wire_name(one), one.name, _later(hints[one.name]), needed))

    def read(value: Any) -> Any:
        fields: dict[str, Any] = {}
        for wire, name, item, needed in plan:
            if wire in value:
                fields[name] = item(value[wire])
            elif needed:
                raise KeyError(wire)
        return kind(**fields)

    return read


def _later(kind: Any) -> Read:
    """Like `reader`, for types that contain themselves."""
    if dataclasses.is_dataclass(kind):
        return lambda value: reader(kind)(value)
    return reader(kind)


# What callers may say in a shorter way.


def host_path(value: str | os.PathLike[str] | None) -> str | None:
    """A path of this host, absolute: the daemon works in another directory."""
    return None if value is None else os.path.abspath(os.fspath(value))


def command(value: str | Sequence[str]) -> dict[str, Any]:
    """A command: a string is a script for the shell, a sequence a program and its arguments."""
    if isinstance(value, str):
        return {"command": [value], "mode": "shell"}
    return {"command": [str(word) for word in value], "mode": "argv"}


def secret_env(value: Any) -> list[Any] | None:
    """Secrets for variables: `["TOKEN"]`, `{"TOKEN": "API_TOKEN"}` or the objects of the API."""
    if value is None:
        return None
    if is_object(value):
        return [given({"secret": secret, "variable": variable}) for secret, variable in value.items()]
    return [{"secret": one} if isinstance(one, str) else encode(one) for one in value]


def secrets(value: Any) -> list[Any] | None:
    """Secrets to keep: `{"TOKEN": "value"}` or the objects of the API."""
    if value is None:
        return None
    if is_object(value):
        return [{"name": name, "value": secret} for name, secret in value.items()]
    sources = [encode(one) for one in value]
    for source in sources:
        if source.get("path") is not None:
            source["path"] = host_path(source["path"])
    return sources


def secret_refs(value: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Variables by the names of secrets: `{"API_KEY": "openai-api-key"}` or the objects of the API."""
    if value is None:
        return None
    return {name: {"ref": one} if isinstance(one, str) else encode(one) for name, one in value.items()}


def unless_template(template: str | None, value: int, default: int) -> int | None:
    """A number with a default, which a template may say otherwise."""
    return None if template is not None and value == default else value


def published_ports(value: Iterable[Any] | None) -> list[Any] | None:
    """Ports to publish: `8080`, `"9000:8080"` (host, then guest) or the objects of the API."""
    if value is None:
        return None
    ports: list[Any] = []
    for one in value:
        if isinstance(one, int):
            ports.append({"guest_port": one})
        elif isinstance(one, str):
            host, colon, guest = one.rpartition(":")
            numbers = [host, guest] if colon else [guest]
            if not all(number.isascii() and number.isdigit() for number in numbers):
                raise errors.InvalidError(f"{one!r} is no port to publish", hint="GUEST or HOST:GUEST")
            ports.append({"guest_port": int(guest), **({"host_port": int(host)} if colon else {})})
        else:
            ports.append(encode(one))
    return ports
