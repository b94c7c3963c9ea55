"""Reading of operations that correspond to one IR operation.

The other rules are in `shapes`, `regions`, `composed`, `collectives` and `sdy` beside this module.
"""

from shardir import ops as ops  # declares the operations
from shardir.ir import Value
from shardir.stablehlo import (
    reader_collectives as reader_collectives,
    reader_composed as reader_composed,
    reader_regions as reader_regions,
    reader_sdy as reader_sdy,
    reader_shapes as reader_shapes,
)
from shardir.stablehlo.reader_call import READERS, Call, Rule, reads
from shardir.stablehlo.rules import CHLO, NAMES

Values = tuple[Value, ...]

_BARE = {theirs: ours for ours, theirs in NAMES.items()}
_BARE |= {name: name for name in ("abs", "is_finite", "sign")}
"""The IR names of operations without attributes."""


def _bare(ours: str) -> Rule:
    return lambda call: call.emit(ours, *call.operands)


for _theirs, _ours in _BARE.items():
    READERS[f"stablehlo.{_theirs}"] = _bare(_ours)
for _name in CHLO:
    READERS[f"chlo.{_name}"] = _bare(_name)
READERS["chlo.tan"] = _bare("tan")
READERS["chlo.next_after"] = _bare("nextafter")


@reads("multiply")
def _multiply(call: Call) -> Values:
    """Read a product; for bools it is `and`."""
    both = call.take(2)
    return call.emit("and" if both[0].type.dtype == "bool" else "mul", *both)


@reads("compare")
def _compare(call: Call) -> Values:
    direction = call.word("comparison_direction").lower()
    if direction not in ("eq", "ne", "lt", "le", "gt", "ge"):
        raise call.fail(f"values do not compare by {direction.upper()!r}")
    kind = str(call.attrs.get("compare_type", call.words[-1] if call.words else ""))
    both = call.take(2)
    if "TOTALORDER" in kind:
        both = [reader_composed.in_total_order(call, x) for x in both]
    return call.emit(direction, *both)


@reads("constant", "sdy.constant")
def _constant(call: Call) -> Values:
    if call.has("value"):
        node = call.attr("value")
        token = getattr(node, "value", node)
    else:
        token = next((part for part in call.literals if getattr(part, "type", "") == "DENSE"), None)
    if getattr(token, "type", "") != "DENSE":
        raise call.fail("a constant is written as dense<...>")
    return call.emit("constant", value=call.types.constant(token, call.result))


@reads("iota")
def _iota(call: Call) -> Values:
    return call.emit("iota", dim=call.integer("dim", "iota_dimension"))


@reads("bitcast_convert")
def _bitcast(call: Call) -> Values:
    return call.emit("bitcast", *call.take(1))


@reads("func.call")
def _call(call: Call) -> Values:
    symbol = call.symbol or call.attr("callee")
    return call.reader.call(call, symbol)


READERS["call"] = _call


@reads("composite")
def _composite(call: Call) -> Values:
    """Read a composite as a call of its decomposition."""
    return call.reader.call(call, call.attr("decomposition"))
