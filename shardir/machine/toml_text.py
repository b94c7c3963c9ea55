"""TOML text of descriptions: tables, lists of tables, numbers, strings and lists of numbers."""

from collections.abc import Mapping, Sequence
from math import isinf
from typing import Any


def format_toml(content: Mapping[str, object], comment: str = "") -> str:
    """Return the text of nested tables; values come before tables, as TOML requires."""
    lines = [f"# {line}".rstrip() for line in comment.splitlines()]
    lines += _lines_of_table(content, "")
    return "\n".join(lines).strip("\n") + "\n"


def _lines_of_table(table: Mapping[str, Any], name: str) -> list[str]:
    values = {key: value for key, value in table.items() if not _is_table(value)}
    lines = [f"{_format_key(key)} = {_format_value(value)}" for key, value in values.items()]
    if name and (lines or not table):
        lines.insert(0, f"[{name}]")
    if lines:
        lines.append("")
    for key, value in table.items():
        place = f"{name}.{_format_key(key)}" if name else _format_key(key)
        if isinstance(value, Mapping):
            lines += _lines_of_table(value, place)
        elif _is_table(value):
            for entry in value:
                body = _lines_of_table(entry, "")
                lines += [f"[[{place}]]", *body]
    return lines


def _is_table(value: object) -> bool:
    if isinstance(value, Mapping):
        return True
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)


def _format_key(key: str) -> str:
    is_bare = key and all(c.isascii() and (c.isalnum() or c in "-_") for c in key)
    return key if is_bare else _format_string(key)


def _format_string(text: str) -> str:
    escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return '"' + "".join(escapes.get(c, c if c >= " " else f"\\u{ord(c):04x}") for c in text) + '"'


def _format_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _format_string(value)
    if isinstance(value, float):
        return ("inf" if value > 0 else "-inf") if isinf(value) else f"{value:.6g}".replace("+", "")
    if isinstance(value, Sequence):
        return f"[{', '.join(map(_format_value, value))}]"
    return str(value)
