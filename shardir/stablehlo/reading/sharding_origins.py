"""Reading of sharding origins: for each axis of a sharding, the statement from which it comes.

Shardy writes them with `debug-sharding-origins`, as `{a = "self", b = "input: 0"}`.
"""

import re

from lark import Token

from shardir.errors import count_noun
from shardir.ir.mesh import Mesh
from shardir.ir.sharding import Axis, missing_axis_fault, sub_axis_fault
from shardir.stablehlo.reading import records
from shardir.stablehlo.reading.types import TypeParser

_AXIS = re.compile(r"([^:]+)(?::\(([0-9]{1,9})\)([0-9]{1,9}))?")
_BARE_KEY = re.compile(r"[A-Za-z_][\w$]*")


def format_origins(node: object, types: TypeParser, mesh: Mesh, at: Token) -> str:
    """Return origins as text after checking that their axes are axes of the mesh."""
    if not isinstance(node, records.DictRecord):
        raise types.source.fail('origins are written as {axis = "origin"}', at)
    fields = []
    for entry in node.entries:
        if not (
            isinstance(entry, records.AttributeRecord)
            and isinstance(entry.value, Token)
            and entry.value.type == "STRING"
        ):
            raise types.source.fail('origins are written as {axis = "origin"}', at)
        name = types.string(entry.key)
        if fault := _axis_fault(name, mesh):
            raise types.source.fail(fault, entry.key)
        key = name if _BARE_KEY.fullmatch(name) else f'"{name}"'
        fields.append(f"{key} = {entry.value}")
    return f"{{{', '.join(fields)}}}"


def format_origin_lists(
    node: object, types: TypeParser, mesh: Mesh, at: Token, count: int | None = None
) -> str:
    """Return a list of origins, one for each of `count` values, as text."""
    if not isinstance(node, records.ListsRecord) or len(node.lists) != 1:
        raise types.source.fail('origins of several values are written as [{axis = "origin"}]', at)
    items = node.lists[0].items
    if count is not None and len(items) != count:
        raise types.source.fail(
            f"these are origins of {count_noun(len(items), 'value')}, not of {count}", at
        )
    return f"[{', '.join(format_origins(item, types, mesh, at) for item in items)}]"


def _axis_fault(text: str, mesh: Mesh) -> str | None:
    """Return why the text is no axis of the mesh: a name, or a sub-axis `a:(1)2`."""
    match = _AXIS.fullmatch(text)
    name = text if match is None else match[1]
    if fault := missing_axis_fault(name, mesh):
        return fault
    if match is None or match[2] is None:
        return None
    return sub_axis_fault(Axis(name, int(match[2]), int(match[3])), mesh)
