"""Reading of operations that correspond to one IR operation.

The other rules are in `shapes`, `regions`, `composed`, `decompositions`, `custom_calls`,
`collectives` and `sdy` beside this module, and in `expansions`.
"""

from shardir import ops as ops  # declares the operations
from shardir.ir.module import Value
from shardir.ops.elementwise.packed_bitcast import emit_packed_bitcast, is_packed_bitcast
from shardir.stablehlo.reading import (
    collectives as collectives,
    composed as composed,
    custom_calls as custom_calls,
    decompositions as decompositions,
    products as products,
    regions as regions,
    sdy as sdy,
    shapes as shapes,
)
from shardir.stablehlo.reading.call import READERS, OperationReader, ReadingRule, register_reader
from shardir.stablehlo.reading.expansions import (
    random_bits as random_bits,
    scans as scans,
    selections as selections,
    special_functions as special_functions,
)
from shardir.stablehlo.writing.rules import CHLO_NAMES, STABLEHLO_NAMES

Values = tuple[Value, ...]

_ATTRIBUTELESS = {theirs: ours for ours, theirs in STABLEHLO_NAMES.items()}
_ATTRIBUTELESS |= {name: name for name in ("abs", "is_finite", "sign")}
"""The IR names of operations without attributes."""


def _attributeless_rule(ours: str) -> ReadingRule:
    return lambda call: call.emit(ours, *call.operands)


for _theirs, _ours in _ATTRIBUTELESS.items():
    READERS[f"stablehlo.{_theirs}"] = _attributeless_rule(_ours)
for _name in CHLO_NAMES:
    READERS[f"chlo.{_name}"] = _attributeless_rule(_name)
READERS["chlo.tan"] = _attributeless_rule("tan")
READERS["chlo.next_after"] = _attributeless_rule("nextafter")


@register_reader("multiply")
def _multiply(call: OperationReader) -> Values:
    """Read a product; for bools it is `and`."""
    both = call.take_operands(2)
    return call.emit("and" if both[0].type.dtype == "bool" else "mul", *both)


@register_reader("compare")
def _compare(call: OperationReader) -> Values:
    direction = call.word("comparison_direction").lower()
    if direction not in ("eq", "ne", "lt", "le", "gt", "ge"):
        raise call.fail(f"values do not compare by {direction.upper()!r}")
    kind = str(call.attrs.get("compare_type", call.words[-1] if call.words else ""))
    both = call.take_operands(2)
    if "TOTALORDER" in kind:
        both = [composed.to_total_order(call, x) for x in both]
    return call.emit(direction, *both)


@register_reader("constant", "sdy.constant")
def _constant(call: OperationReader) -> Values:
    if call.has("value"):
        node = call.attr("value")
        token = getattr(node, "value", node)
    else:
        token = next((part for part in call.literals if getattr(part, "type", "") == "DENSE"), None)
    if getattr(token, "type", "") != "DENSE":
        raise call.fail("a constant is written as dense<...>")
    return call.emit("constant", value=call.types.constant(token, call.result))


@register_reader("iota")
def _iota(call: OperationReader) -> Values:
    return call.emit("iota", dim=call.integer("dim", "iota_dimension"))


@register_reader("bitcast_convert")
def _bitcast(call: OperationReader) -> Values:
    """Read a bitcast; the IR reinterprets u64, the type of PRNG keys, as i64 only."""
    (x,) = call.take_operands(1)
    if x.type.dtype == "u64" and call.result.dtype != "i64":
        x = call.emit_step("convert", x, result=x.type.with_dtype("i64"))
    to = call.result
    if to.dtype == "u64" and x.type.dtype != "i64":
        to = to.with_dtype("i64")
    is_packed = is_packed_bitcast(x.type.dtype, to.dtype)
    if is_packed:
        x = emit_packed_bitcast(call.emit_step, x, x.type, to)
    elif to != call.result:
        x = call.emit_step("bitcast", x, result=to)
    if to != call.result:
        return call.emit("convert", x)
    return (x,) if is_packed else call.emit("bitcast", x)
