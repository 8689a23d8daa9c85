#!/usr/bin/env python3
"""Writes what of the SDK is not written by hand.

- `types.py`: a class per schema of `docs/openapi.json`.
- `_verbs.py`: a method per operation, for both kinds of callers, from one description.
- `_sync/*.py`: the synchronous twin of each module in `_aio`.

Run it after changing the document or `_aio`. With `--check` it writes nothing and fails when a file
differs from what it would write.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from generator.document import (
    MARK,
    Document,
    Schema,
    identifier,
    literal,
    ref,
    ref_of_map,
    spelled,
    types_text,
    words,
)
from generator.tables import (
    DEFAULTS,
    DROPPED,
    HOST_PATHS,
    HOST_PATHS_OF,
    NEEDED,
    OF_TEMPLATES,
    PATH_NAMES,
    POSITIONAL,
    RENAMED,
    SHORT,
    SHORT_IN,
)

HERE = Path(__file__).resolve().parent
PACKAGE = HERE / "src" / "motu"
DOCUMENT = HERE.parents[1] / "docs" / "openapi.json"


@dataclass
class Parameter:
    """One argument of a method."""

    wire: str
    name: str
    kind: str
    default: str | None
    #: The expression that is sent.
    value: str
    #: Whether the expression is a whole dictionary and not the value of a field.
    whole: bool = False
    about: str = ""


@dataclass
class Verb:
    """One method, before it is put into words."""

    name: str
    method: str
    path: str
    summary: str
    path_names: list[Parameter] = field(default_factory=list)
    query: list[Parameter] = field(default_factory=list)
    body: list[Parameter] | None = None
    content: bool = False
    answer: str = ""
    call: str = ""
    extra: list[Parameter] = field(default_factory=list)


class Verbs:
    """Every method, and which operations they stand for."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.verbs: list[Verb] = []
        #: The method of each operation.
        self.by_operation: dict[str, str] = {}
        operations = {
            operation["operationId"]: (method.upper(), path, operation)
            for path, methods in document.paths.items()
            for method, operation in methods.items()
            # Another shape of what sandboxes and templates are, for those who know it; and open
            # files, which come over no connection of HTTP.
            if "capsules" not in operation["tags"] and operation["operationId"] not in ("lend_file", "lend_directory")
        }
        for name, (method, path, operation) in operations.items():
            if f"{name}_ws" in operations and self.kind(operation) == "application/vnd.motu.stream":
                # The WebSocket carries the same frames both ways at once, which clients of HTTP cannot.
                self.by_operation[name] = name
                continue
            base = operations.get(name.removesuffix("_ws"), (method, path, operation))[2]
            self.by_operation[name] = self.add(name, method, path, operation, base)

    @staticmethod
    def kind(operation: Any) -> str:
        """What an answer is made of; a status for those that are made of nothing."""
        for status, response in operation["responses"].items():
            if status != "default":
                return str(next(iter(response.get("content", {})), status))
        raise ValueError(operation["operationId"])

    def add(self, name: str, method: str, path: str, operation: Any, base: Any) -> str:
        live = name.endswith("_ws")
        commands = live and "requestBody" in base
        if live:
            name = name.removesuffix("_ws") + ("_stream" if commands else "")
        summary = base.get("summary") or operation.get("summary", "")
        if name.endswith("_output") and summary.startswith("The same"):
            summary = "What it writes, without input."
        verb = Verb(name, method, path, summary + ("" if summary.endswith(".") else "."))
        self.path_parameters(verb)
        queries = [one for one in operation.get("parameters", []) if one["in"] == "query"]
        verb.query = self.fields(
            name,
            {one["name"]: {**one["schema"], "description": one.get("description")} for one in queries},
            {one["name"] for one in queries if one.get("required")},
        )
        self.content(verb, base if commands else operation)
        self.answer(verb, operation, live=live, commands=commands)
        self.verbs.append(verb)
        return name

    def path_parameters(self, verb: Verb) -> None:
        sent = verb.path
        for found in re.finditer(r"\{(\w+)\}", verb.path):
            wire = found.group(1)
            name = PATH_NAMES.get(verb.path[: found.end()], wire)
            kind = "int | str" if wire in ("selector", "port") else "str"
            verb.path_names.append(Parameter(wire, name, kind, None, name))
            sent = sent.replace(found.group(0), "{wire.segment(" + name + ")}", 1)
        verb.path = f'f"{sent}"' if verb.path_names else f'"{sent}"'

    def content(self, verb: Verb, operation: Any) -> None:
        media = operation.get("requestBody", {}).get("content", {})
        if "application/json" in media:
            schema = self.document.flat(media["application/json"]["schema"])
            dropped = DROPPED.get(verb.name, set())
            properties = {name: one for name, one in schema["properties"].items() if name not in dropped}
            verb.body = self.fields(verb.name, properties, set(schema.get("required", [])))
        elif media:
            verb.content = True

    def fields(self, verb: str, properties: dict[str, Schema], required: set[str]) -> list[Parameter]:
        found: list[Parameter] = []
        needed = required | set(NEEDED.get(verb, []))
        for wire, schema in properties.items():
            if wire.endswith("_base64") and wire.removesuffix("_base64") in properties:
                continue
            if wire == "mode" and "command" in properties:
                continue
            found.append(self.one_field(verb, wire, schema, wire in needed, properties))
        return found

    def one_field(self, verb: str, wire: str, schema: Schema, needed: bool, all_fields: dict[str, Schema]) -> Parameter:
        name = identifier(RENAMED.get((verb, wire), wire))
        kind = spelled(schema, self.document, argument=True)
        default: Any = DEFAULTS.get(verb, {}).get(wire, schema.get("default"))
        value, whole = name, False
        if wire == "command" and "mode" in all_fields:
            kind, value, whole = "str | Sequence[str]", f"wire.command({name})", True
        elif wire == "input" and "input_base64" in all_fields:
            kind, value, whole = "str | bytes", f'wire.path("{wire}", {name})', True
        elif f"{wire}_base64" in all_fields:
            kind, value, whole = "str | bytes | os.PathLike[str]", f'wire.path("{wire}", {name})', True
        elif verb in SHORT_IN.get(wire, ()):
            kind, value = SHORT[wire], f"wire.{wire}({name})"
        elif ref_of_map(schema) == "SecretRef":
            kind, value = "Mapping[str, str | types.SecretRef | Mapping[str, Any]]", f"wire.secret_refs({name})"
        elif wire in HOST_PATHS or (verb, wire) in HOST_PATHS_OF:
            kind, value = "str | os.PathLike[str]", f"wire.host_path({name})"
        elif "template" in all_fields and wire in OF_TEMPLATES and wire in DEFAULTS.get(verb, {}):
            value = f"wire.unless_template(template, {name}, {literal(default)})"
        if needed:
            return Parameter(wire, name, kind.removesuffix(" | None"), None, value, whole)
        if default is None or isinstance(default, (dict, list)):
            kind += "" if kind.endswith("None") or kind == "Any" else " | None"
            return Parameter(wire, name, kind, "None", value, whole)
        return Parameter(wire, name, kind.removesuffix(" | None"), literal(default), value, whole)

    def answer(self, verb: Verb, operation: Any, *, live: bool, commands: bool) -> None:
        media = self.kind(operation)
        schema: Schema = {}
        for status, response in operation["responses"].items():
            if status != "default" and media in response.get("content", {}):
                schema = response["content"][media]["schema"]
                break
        resume = ", resume=True" if any(one.wire == "stdout_from" for one in verb.query) else ""
        start = f'"{verb.method}", {verb.path}'
        if commands and verb.path_names:
            place = f"wire.segment({verb.path_names[0].name})"
            verb.answer, verb.call = "AsyncStream", f"self._command({verb.path}, sandbox_id={place}"
        elif live:
            verb.answer, verb.call = "AsyncStream", f"self._live({verb.path}{resume}"
        elif media == "application/vnd.motu.stream":
            verb.answer, verb.call = "AsyncStream", f"self._output({verb.path}{resume}"
        elif media == "101":
            verb.answer, verb.call = "AsyncConnection", f"self._dial({verb.path}"
        elif media == "204":
            verb.answer, verb.call = "None", f"self._nothing({start}"
        elif media == "application/x-ndjson":
            self.lines(verb, schema, start)
        elif media == "application/json" and "$ref" in schema:
            kind = "types." + ref(schema)
            verb.answer, verb.call = kind, f"self._json({kind}, {start}"
        elif media == "application/json":
            verb.answer, verb.call = "dict[str, Any]", f"self._value({start}"
        elif media == "text/plain":
            verb.answer, verb.call = "str", f"self._text({start}"
        else:
            verb.answer, verb.call = "bytes", f"self._bytes({start}"

    def lines(self, verb: Verb, schema: Schema, start: str) -> None:
        if "$ref" not in schema:
            verb.answer, verb.call = "AsyncLines[dict[str, Any]]", f"self._lines({start}"
            return
        kinds = {
            name: "types." + ref(one)
            for part in self.document.follow(schema)["oneOf"]
            for name, one in part["properties"].items()
            if name != "error"
        }
        if "result" in kinds:
            step = kinds["progress"]
            heard = f"Callable[[{step}], object] | None"
            verb.extra.append(Parameter("", "progress", heard, "None", "progress"))
            verb.answer, verb.call = kinds["result"], f"self._last({kinds['result']}, {step}, progress, {start}"
        else:
            ((name, kind),) = kinds.items()
            verb.answer, verb.call = f"AsyncLines[{kind}]", f'self._items({kind}, "{name}", {start}'

    def text(self) -> str:
        lines = ["class AsyncVerbs(AsyncTransport):", '    """Every verb of the API."""']
        for verb in self.verbs:
            lines += method_lines(verb)
        made = "\n".join(lines)
        head = [
            '"""One method per operation of the API."""',
            "",
            "from __future__ import annotations",
            "",
            "import os",
            "from collections.abc import Callable, Mapping, Sequence",
            "from typing import Any",
            "",
            "from . import _wire as wire",
            "from . import types",
            "from ._aio.streams import AsyncConnection, AsyncLines, AsyncStream",
            "from ._aio.transport import AsyncContent, AsyncTransport",
            "from ._sync.streams import Connection, Lines, Stream",
            "from ._sync.transport import Content, Transport",
            "",
            "#: The method of each operation of the document.",
            "OPERATIONS = {",
            *(f'    "{name}": "{method}",' for name, method in sorted(self.by_operation.items())),
            "}",
            "",
            "",
        ]
        return MARK + "\n".join(head) + made + "\n\n\n" + twin(made) + "\n"


def method_lines(verb: Verb) -> list[str]:
    fields = verb.query + (verb.body or [])
    loose = [one for name in POSITIONAL.get(verb.name, []) for one in fields if one.wire == name]
    named = [one for one in fields if one not in loose] + verb.extra
    named.sort(key=lambda one: one.default is not None)
    # An optional argument cannot come before one that is needed.
    first = verb.path_names + loose
    content = [Parameter("", "content", "AsyncContent", None, "content")] if verb.content else []
    arguments = ["self", *(argument(one) for one in first + content)]
    if named:
        arguments += ["*", *(argument(one) for one in named)]
    call = verb.call
    if verb.query:
        call += f", params={dictionary('wire.request', verb.query)}" if any(one.whole for one in verb.query) else (
            ", params={" + ", ".join(f'"{one.wire}": {one.value}' for one in verb.query) + "}"
        )
    if verb.body is not None:
        name = "first" if verb.answer == "AsyncStream" else "body"
        call += f", {name}={dictionary('wire.request', verb.body)}"
    if verb.content:
        call += ", content=content"
    signature = f"    async def {verb.name}({', '.join(arguments)}) -> {verb.answer}:"
    if len(signature) > 116:
        inside = ",\n        ".join(arguments)
        signature = f"    async def {verb.name}(\n        {inside},\n    ) -> {verb.answer}:"
    finish = f"        return await {call})" if verb.answer != "None" else f"        await {call})"
    if verb.answer == "dict[str, Any]":
        finish = f"        value: dict[str, Any] = await {call})\n        return value"
    return ["", signature, *words(verb.summary, "        ", quote=True), finish]


def argument(one: Parameter) -> str:
    return f"{one.name}: {one.kind}" + (f" = {one.default}" if one.default is not None else "")


def dictionary(function: str, fields: list[Parameter]) -> str:
    plain = ",\n            ".join(f'"{one.wire}": {one.value}' for one in fields if not one.whole)
    wholes = "".join(f", {one.value}" for one in fields if one.whole)
    inside = "{" + (f"\n            {plain},\n        " if plain else "") + "}"
    return f"{function}({inside}{wholes})"


TWIN = [
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAwaitable\[(\w+)\]", r"\1"),
    (r"\bAwaitable, ", ""),
    (r"__a(enter|exit|iter|next)__", r"__\1__"),
    (r"\bAsync([A-Z])", r"\1"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\baclose\b", "close"),
    (r"\baread\b", "read"),
    (r"\baiter_(\w+)", r"iter_\1"),
    (r"\banext\b", "next"),
    (r"\benter_async_context\b", "enter_context"),
    (r"\bpush_async_callback\b", "callback"),
    (r"\basync_(\w+)", r"sync_\1"),
    (r"\b_aio\b", "_sync"),
    (r"\basynchronous\b", "synchronous"),
]


def twin(text: str) -> str:
    """The synchronous form of asynchronous text."""
    for pattern, replacement in TWIN:
        text = re.sub(pattern, replacement, text)
    return text


def outputs() -> dict[Path, str]:
    """Every generated file and what is in it."""
    document = Document(DOCUMENT.read_text())
    files = {PACKAGE / "types.py": types_text(document), PACKAGE / "_verbs.py": Verbs(document).text()}
    for source in sorted((PACKAGE / "_aio").glob("*.py")):
        text = twin(source.read_text())
        if source.name == "__init__.py":
            text = '"""The synchronous client, made from `_aio`."""\n'
        files[PACKAGE / "_sync" / source.name] = MARK + text
    return files


def main() -> int:
    stale = [path for path, text in outputs().items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(HERE)} differs from what generate.py makes", file=sys.stderr)
        return 1 if stale else 0
    for path, text in outputs().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
