"""Conversion between records and JSON."""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from operator import attrgetter
from types import UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from shardir.errors import ShardirError, count_noun, suggest_name
from shardir.frontend.report.contradictions import find_contradictions
from shardir.frontend.report.records import FORMAT, VERSION, ReportData

MAX_NUMBER = 1e300
"""Numbers of reports are below this limit, so that sums and products with units are finite."""


class ReportError(ShardirError, ValueError):
    """A report that cannot be read or written."""


def to_json(data: ReportData) -> str:
    """Return the data as JSON, with the same bytes for the same data."""
    whole = {"format": FORMAT, "version": VERSION, **_plain(data)}
    packed = json.dumps(
        whole, separators=(",", ":"), ensure_ascii=True, allow_nan=False, default=_plain
    )
    return packed + "\n"


def from_json(text: str, name: str) -> ReportData:
    """Return the data in JSON text; `name` is its file for errors.

    Raises `ReportError` if the text is not the JSON of a report.
    """
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{name} is not a report: it is not JSON ({error})") from None
    if not isinstance(whole, dict) or whole.get("format") != FORMAT:
        raise ReportError(f'{name} is not a report: it has no field "format" with "{FORMAT}"')
    version = whole.get("version")
    if version != VERSION:
        raise ReportError(
            f"{name} is a report of version {version!r}, and this shardir reads version {VERSION}; "
            "write the report again, or read it with the shardir that wrote it"
        )
    content = {key: value for key, value in whole.items() if key not in ("format", "version")}
    reader = _Reader(name)
    data: ReportData = reader.record(ReportData, content, "the report")
    reader.check_references(data)
    return data


def _plain(record: object) -> dict[str, Any]:
    """Return the fields of a record, without its cached properties."""
    kind: type = type(record)
    names, values = _field_getter(kind)
    return dict(zip(names, values(record), strict=True))


@cache
def _field_getter(kind: type) -> tuple[tuple[str, ...], Callable[[object], tuple[Any, ...]]]:
    """Return the names of the fields of a record type, and a function that returns their values."""
    # Each type of record has several fields, so the function returns a tuple.
    names = tuple(each.name for each in fields(kind))
    return names, attrgetter(*names)


@cache
def _field_types(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind, include_extras=True)


class _Reader:
    """Makes records of JSON; `name` is the file for errors."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._references: dict[tuple[str, int], str] = {}
        """The place of the first reference to each item, by table and index."""

    def record(self, kind: type, value: object, where: str) -> Any:
        """Return the record of a type that JSON describes; `where` is its place in the report."""
        if not isinstance(value, dict):
            raise self._error(f"{where} is {_describe(value)}, and should be an object")
        types = _field_types(kind)
        for key in value:
            if key not in types:
                hint = suggest_name(key, types) or f"the fields are {', '.join(types)}"
                raise self._error(f"{where} has no field {key!r}; {hint}")
        for key in types:
            if key not in value:
                raise self._error(f"{where} lacks the field {key!r}")
        fields = {
            key: self._read(types[key], item, f"{key} of {where}") for key, item in value.items()
        }
        return kind(**fields)

    def check_references(self, data: ReportData) -> None:
        """Raise `ReportError` for an index that is outside of its table."""
        for (table, index), where in self._references.items():
            count = len(attrgetter(table)(data))
            if not 0 <= index < count:
                raise self._error(
                    f"{where} is {index}, and {table} has {count_noun(count, 'item')}"
                )
        for message in find_contradictions(data):
            raise self._error(message)

    def _read(self, kind: Any, value: Any, where: str) -> Any:
        """Return the value of a field of type `kind`."""
        if isinstance(kind, UnionType):
            (inner,) = (each for each in get_args(kind) if each is not type(None))
            return None if value is None else self._read(inner, value, where)
        if get_origin(kind) is Annotated:
            kind, index = get_args(kind)
            if type(value) is int:
                self._references.setdefault((index.table, value), where)
        if get_origin(kind) is tuple:
            return self._read_tuple(get_args(kind), value, where)
        if is_dataclass(kind):
            return self.record(kind, value, where)  # type: ignore[arg-type]
        accepted = (int, float) if kind is float else (kind,)
        if type(value) not in accepted:
            raise self._error(f"{where} is {_describe(value)}, and should be {_TYPE_NAMES[kind]}")
        if kind in (int, float) and not -MAX_NUMBER < value < MAX_NUMBER:
            raise self._error(f"{where} is not between -{MAX_NUMBER:g} and {MAX_NUMBER:g}")
        return value

    def _read_tuple(self, kinds: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise self._error(f"{where} is {_describe(value)}, and should be a list")
        if len(kinds) == 2 and kinds[1] is Ellipsis:
            kinds = (kinds[0],) * len(value)
        if len(kinds) != len(value):
            raise self._error(
                f"{where} has {count_noun(len(value), 'element')}, and should have {len(kinds)}"
            )
        return tuple(
            self._read(kind, item, f"element {i} of {where}")
            for i, (kind, item) in enumerate(zip(kinds, value, strict=True))
        )

    def _error(self, message: str) -> ReportError:
        return ReportError(f"{self._name}: {message}")


_TYPE_NAMES = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    type(None): "null",
    list: "a list",
    dict: "an object",
}


def _describe(value: object) -> str:
    return _TYPE_NAMES.get(type(value), type(value).__name__)
