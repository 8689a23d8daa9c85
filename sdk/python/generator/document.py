"""The document as types of Python."""

from __future__ import annotations

import json
import keyword
import textwrap
from typing import Any

from .tables import HIDDEN, UNTYPED

MARK = "# Written by generate.py; change that, or what it reads.\n"

Schema = dict[str, Any]


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
        if "allOf" not in schema or "properties" in schema:
            # Parts beside fields are rules about them.
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
        union = argument and "oneOf" in document.schemas[name] and not wide
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
    lines = ["", "", "@dataclass(frozen=True, slots=True, kw_only=True)", f"class {name}(Fields):"]
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
        if "oneOf" in schema and "properties" not in schema:
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
        "",
        "from ._fields import Fields",
    ]
    return MARK + "\n".join([*head, *aliases, *classes, *unions]) + "\n"


def literal(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value)
