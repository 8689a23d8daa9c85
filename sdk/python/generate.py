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
import keyword
import re
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PACKAGE = HERE / "src" / "motu"
DOCUMENT = HERE.parents[1] / "docs" / "openapi.json"
MARK = "# Written by generate.py; change that, or what it reads.\n"

Schema = dict[str, Any]

#: What a path parameter is called, by the path it ends.
PATH_NAMES = {
    "/v1/audit/entries/{audit}": "audit_id",
    "/v1/environments/{name}": "environment",
    "/v1/keys/{key}": "key_id",
    "/v1/policies/{name}": "policy",
    "/v1/sandboxes/{id}": "sandbox_id",
    "/v1/secrets/{name}": "secret_name",
    "/v1/templates/{name}": "template",
    "/v1/terminals/{terminal}": "session_id",
    "/v1/workspaces/{id}": "workspace_id",
    "/v1/workspaces/{id}/services/{name}": "service_name",
    "/v1/workspaces/{id}/shells/{shell}": "shell_id",
    "/v1/workspaces/{id}/snapshots/{name}": "snapshot_name",
}
#: Fields that may be given without their name, after those of the path.
POSITIONAL = {
    "backup": ["output_path"],
    "check_policy": ["text"],
    "chmod": ["path", "mode"],
    "create_sandbox": ["environment"],
    "create_snapshot": ["snapshot_name"],
    "create_workspace": ["environment"],
    "dial_unix": ["path"],
    "edit_workspace": ["edits"],
    "exec": ["command"],
    "exec_background": ["command"],
    "exec_stream": ["command"],
    "expect_in_terminal": ["patterns"],
    "explain_policy": ["host", "port"],
    "export_workspace": ["path"],
    "glob": ["pattern"],
    "hash": ["path"],
    "list_files": ["path"],
    "list_workspace_disk": ["path", "recursive"],
    "list_workspace_files": ["path", "recursive"],
    "mkdir": ["path"],
    "move_file": ["from", "to"],
    "open_terminal": ["session_id"],
    "plan": ["environment"],
    "push_workspace_sync": ["source_path"],
    "put_template": ["environment"],
    "read_file": ["path"],
    "read_tree": ["path"],
    "read_workspace_disk": ["path"],
    "read_workspace_file": ["path"],
    "remove_file": ["path"],
    "resize_process": ["cols", "rows"],
    "resize_shell": ["cols", "rows"],
    "run": ["sandbox", "exec"],
    "run_in_terminal": ["command"],
    "run_stream": ["sandbox", "exec"],
    "send_terminal_password": ["password"],
    "send_to_terminal": ["text"],
    "set_policy": ["policy"],
    "signal_process": ["signal"],
    "signal_terminal": ["signal"],
    "start_service": ["service_name"],
    "stat": ["path"],
    "tag_environment": ["name"],
    "watch": ["path"],
    "write_file": ["path"],
    "write_tree": ["path"],
    "write_workspace_file": ["path"],
}
#: Fields with a default in the document that nobody means.
NEEDED = {
    "call": ["command", "state"],
    "check_policy": ["text"],
    "chmod": ["path"],
    "dial_unix": ["path"],
    "exec": ["command"],
    "exec_background": ["command"],
    "exec_stream": ["command"],
    "exec_workspace": ["command"],
    "exec_workspace_stream": ["command"],
    "expect_in_terminal": ["patterns"],
    "explain_policy": ["host"],
    "glob": ["pattern"],
    "hash": ["path"],
    "list_files": ["path"],
    "mkdir": ["path"],
    "move_file": ["from", "to"],
    "open_terminal": ["session_id"],
    "push_workspace_sync": ["source_path"],
    "put_template": ["environment"],
    "read_file": ["path"],
    "read_tree": ["path"],
    "remove_file": ["path"],
    "run": ["sandbox", "exec"],
    "run_in_terminal": ["command"],
    "run_stream": ["sandbox", "exec"],
    "send_terminal_password": ["password"],
    "set_policy": ["policy"],
    "signal_terminal": ["signal"],
    "start_service": ["service_name", "command"],
    "stat": ["path"],
    "watch": ["path"],
    "write_file": ["path"],
    "write_shell": ["input"],
    "write_tree": ["path"],
}
#: Defaults that the contract states and the document leaves to the daemon.
DEFAULTS: dict[str, dict[str, Any]] = {
    "create_sandbox": {"vcpu_count": 1, "mem_mib": 1024},
    "create_workspace": {"vcpu_count": 1, "mem_mib": 1024},
    "exec": {"timeout_seconds": 30},
    "exec_workspace": {"timeout_seconds": 30},
    "list_workspace_disk": {"path": "/workspace"},
    "list_workspace_files": {"path": "/workspace"},
    "logs_service": {"tail_lines": 200},
    "open_shell": {"cwd": "/workspace", "cols": 120, "rows": 30},
    "plan": {"vcpu_count": 1, "mem_mib": 1024},
    "push_workspace_sync": {"dest": "/workspace"},
    "read_shell": {"cursor": 0, "max_chars": 65536, "plain": False},
    "read_workspace_disk": {"max_bytes": 65536},
    "read_workspace_file": {"max_bytes": 65536},
    "start_service": {"cwd": "/workspace", "ready_timeout_seconds": 30, "ready_interval_ms": 500},
    "write_shell": {"append_newline": True},
}
#: Defaults that give way to a template.
OF_TEMPLATES = {"vcpu_count", "mem_mib"}
#: Other names for fields, from the contract.
RENAMED = {("signal_shell", "signal"): "signal_name"}
#: Fields that mean nothing in a call whose answer comes at once, or that have a method of their own.
DROPPED = {
    "exec": {"background", "stdin", "tty", "no_timeout", "output_ring_bytes"},
    "exec_stream": {"background"},
    "exec_workspace": {"stdin"},
}
#: Paths of the host: absolute before they are sent, because the daemon works elsewhere.
HOST_PATHS = {"seed_path", "source_path", "output_path"}
HOST_PATHS_OF = {("set_secret", "path")}
#: Fields that have a shorter form: the type of the argument. `_wire` has a function of the same name.
SHORT = {
    "secret_env": "Mapping[str, str | None] | Sequence[str | types.SecretEnv | Mapping[str, Any]]",
    "secrets": "Mapping[str, str] | Sequence[types.SecretSource | Mapping[str, Any]]",
    "published_ports": "Sequence[int | str | types.Publish | Mapping[str, Any]]",
}
SHORT_IN = {
    "secret_env": {"exec_workspace", "exec_workspace_stream", "open_shell", "start_service"},
    "secrets": {"create_workspace"},
    "published_ports": {"start_service"},
}
#: The wire of live streams: `_frames.py` reads it.
UNTYPED = {"Event", "Control", "ErrorBody", "EnvironmentLine", "TemplateLine", "WatchLine"}
#: What members of a union are made of: a union's members have classes of their own.
UNTYPED |= {"NextVerb", "NextField"}
#: Fields that must not show in a `repr`.
HIDDEN = re.compile(r"(.*Secret.*\.value|.*[Pp]assword\.password)$")



class Document:
    """The document, with its references followed."""

    def __init__(self, text: str) -> None:
        whole = json.loads(text)
        self.schemas: dict[str, Schema] = whole["components"]["schemas"]
        self.paths: dict[str, dict[str, Any]] = whole["paths"]

    def follow(self, schema: Schema) -> Schema:
        return self.schemas[ref(schema)] if "$ref" in schema else schema

    def flat(self, schema: Schema) -> Schema:
        """An object with all its fields, also those of what it is put together from."""
        schema = self.follow(schema)
        if "allOf" not in schema:
            return schema
        merged: Schema = {"type": "object", "properties": {}, "required": [], "description": schema.get("description")}
        for part in schema["allOf"]:
            part = self.flat(part)
            merged["properties"].update(part.get("properties", {}))
            merged["required"] += part.get("required", [])
            merged["description"] = merged["description"] or part.get("description")
        return merged

    def is_object(self, schema: Schema) -> bool:
        flat = self.flat(schema)
        return "properties" in flat


def ref(schema: Schema) -> str:
    return str(schema["$ref"].rsplit("/", 1)[1])


def ref_of_map(schema: Schema) -> str | None:
    """What the values of a map are, if they have a name."""
    values = schema.get("additionalProperties")
    return ref(values) if isinstance(values, dict) and "$ref" in values else None


def identifier(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) else name


def split_null(schema: Schema) -> tuple[Schema, bool]:
    """A schema without `null`, and whether it was allowed."""
    for word in ("oneOf", "anyOf"):
        if word in schema and any(one.get("type") == "null" for one in schema[word]):
            rest = [one for one in schema[word] if one.get("type") != "null"]
            return (rest[0] if len(rest) == 1 else {word: rest}), True
    kind = schema.get("type")
    if isinstance(kind, list):
        rest = [one for one in kind if one != "null"]
        return {**schema, "type": rest[0]}, "null" in kind
    return schema, False


def spelled(schema: Schema, document: Document, *, argument: bool = False) -> str:
    """A schema as a type of Python: of a field, or (wider) of an argument."""
    schema, nullable = split_null(schema)
    end = " | None" if nullable else ""
    if "$ref" in schema:
        name = ref(schema)
        wide = " | Mapping[str, Any]" if argument and document.is_object(schema) else ""
        union = argument and "oneOf" in document.schemas[name]
        prefix = "types." if argument else ""
        return f"{prefix}{name}{' | Mapping[str, Any]' if union else wide}{end}"
    if "enum" in schema:
        return f"Literal[{', '.join(literal(one) for one in schema['enum'])}]{end}"
    kind = schema.get("type")
    if kind == "array":
        inner = spelled(schema.get("items") or {}, document, argument=argument)
        return f"{'Sequence' if argument else 'list'}[{inner}]{end}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        inner = spelled(schema["additionalProperties"], document, argument=argument)
        return f"{'Mapping' if argument else 'dict'}[str, {inner}]{end}"
    if kind == "string" and schema.get("format") == "date-time":
        return f"datetime{end}"
    plain = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "object": "dict[str, Any]"}
    return plain[kind] + end if kind in plain else "Any"


def words(text: str | None, indent: str, quote: bool = False) -> list[str]:
    """A description as a comment of one or more lines, or as a docstring."""
    flat = " ".join((text or "").split())
    if not flat:
        return []
    if quote:
        # A backslash of a description is one, also in Python.
        flat = flat.replace("\\", "\\\\").replace('"""', "'''")
        lines = textwrap.wrap(flat, 112 - len(indent))
        if len(lines) == 1:
            return [f'{indent}"""{lines[0]}"""']
        return [f'{indent}"""{lines[0]}', *(indent + line for line in lines[1:]), f'{indent}"""']
    return [f"{indent}#: {line}" for line in textwrap.wrap(flat, 110 - len(indent))]


def class_lines(name: str, schema: Schema, document: Document, tag: str | None = None) -> list[str]:
    lines = ["", "", "@dataclass(frozen=True, slots=True, kw_only=True)", f"class {name}:"]
    lines += words(schema.get("description"), "    ", quote=True)
    required = set(schema.get("required", []))
    for wire, one in schema.get("properties", {}).items():
        lines += words(one.get("description"), "    ")
        attribute = identifier(wire)
        if wire == "type" and tag is not None:
            lines.append(f'    type: Literal["{tag}"] = "{tag}"')
            continue
        kind = spelled(one, document)
        facts: list[str] = []
        if wire not in required:
            if kind == "bool":
                facts.append("default=False")
            elif kind.startswith("list["):
                facts.append("default_factory=lambda: []")
            elif kind.startswith("dict["):
                facts.append("default_factory=lambda: {}")
            else:
                facts.append("default=None")
                kind += "" if kind.endswith("None") or kind == "Any" else " | None"
        if attribute != wire:
            facts.append(f'metadata={{"wire": "{wire}"}}')
        if HIDDEN.match(f"{name}.{wire}"):
            facts.append("repr=False")
        if not facts:
            lines.append(f"    {attribute}: {kind}")
        elif len(facts) == 1 and facts[0].startswith("default="):
            lines.append(f"    {attribute}: {kind} = {facts[0].removeprefix('default=')}")
        else:
            lines.append(f"    {attribute}: {kind} = field({', '.join(facts)})")
    if len(lines) == 4 or lines[-1].endswith('"""') and not schema.get("properties"):
        lines.append("    pass")
    return lines


def tag_of(schema: Schema) -> str:
    kind = schema["properties"]["type"]
    return str(kind.get("const") or kind["enum"][0])


def types_text(document: Document) -> str:
    aliases: list[str] = []
    classes: list[str] = []
    unions: list[str] = []
    for name, schema in document.schemas.items():
        if name in UNTYPED:
            continue
        if "oneOf" in schema:
            members: list[str] = []
            for one in map(document.flat, schema["oneOf"]):
                member = name + "".join(word.capitalize() for word in tag_of(one).split("_"))
                classes += class_lines(member, one, document, tag_of(one))
                members.append(member)
            unions += ["", *words(schema.get("description"), ""), f"{name} = {' | '.join(members)}"]
        elif document.is_object(schema):
            classes += class_lines(name, document.flat(schema), document)
        else:
            aliases += ["", *words(schema.get("description"), ""), f"{name} = {spelled(schema, document)}"]
    head = [
        '"""The words of the API."""',
        "",
        "from __future__ import annotations",
        "",
        "from dataclasses import dataclass, field",
        "from datetime import datetime",
        "from typing import Any, Literal",
    ]
    return MARK + "\n".join([*head, *aliases, *classes, *unions]) + "\n"



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


def literal(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value)


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
