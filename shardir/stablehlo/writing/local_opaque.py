"""The text of opaque operations in per-device programs, whose tensors are shards.

The types are those of the shards, and the factor rule of the global operation is left out.
"""

import re

from shardir.ir.module import Op
from shardir.ops.opaque import RULE_ATTRIBUTE
from shardir.stablehlo.writing.attributes import format_tensor
from shardir.stablehlo.writing.writer import ExportError

_TYPE = re.compile(r"tensor<(?:[^<>]|<[^<>]*>)*>|!stablehlo\.token")
_RULE = re.compile(rf"(?:, )?{re.escape(RULE_ATTRIBUTE)} = #sdy\.op_sharding_rule<")


def local_types(op: Op) -> str:
    """Return the types of an opaque operation with those of its tensors.

    Raise `ExportError` if the text does not state one type for each tensor, or one for all.
    """
    stated = _TYPE.findall(op.attrs["types"])
    actual = [format_tensor(value.type) for value in (*op.operands, *op.results)]
    if len(stated) != len(actual):
        if set(stated) == set(actual):
            return str(op.attrs["types"])
        if len(stated) != 1 or len(set(actual)) != 1:
            raise ExportError(
                f"{op.attrs['operation']} states the types {op.attrs['types']!r}, which are not "
                "those of its tensors on one device; replicate its operands and results, or state "
                "the type of each of them"
            )
    types = iter(actual)
    return _TYPE.sub(lambda _: next(types), op.attrs["types"])


def without_rule(attributes: str) -> str:
    """Return the text of attributes without the factor rule."""
    match = _RULE.search(attributes)
    if match is None:
        return attributes
    depth, end = 1, match.end()
    while depth:
        depth += {"<": 1, ">": -1}.get(attributes[end], 0) * (attributes[end - 1 : end + 1] != "->")
        end += 1
    return (attributes[: match.start()] + attributes[end:]).removeprefix(", ")
