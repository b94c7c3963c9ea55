"""What the operations of Shardy's dialect are in our IR."""

from typing import Any

from lark import Token

from shardir import ops as ops  # declares the operations
from shardir.ir import Value
from shardir.opset import Symbol
from shardir.placement import Sharding
from shardir.stablehlo import reader_records as records
from shardir.stablehlo.reader_call import Call, Unsupported, reads

Values = tuple[Value, ...]


@reads("sdy.sharding_constraint", "sdy.reshard")
def _move(call: Call) -> Values:
    return call.emit(call.name.removeprefix("sdy."), *call.take(1))


@reads("sdy.sharding_group")
def _group(call: Call) -> Values:
    return call.emit("sharding_group", *call.take(1), group=call.integer("group_id"))


@reads("sdy.propagation_barrier")
def _barrier(call: Call) -> Values:
    said = call.attr("allowed_direction")
    number = said.value if isinstance(said, records.Typed) else said
    word = {"0": "NONE", "1": "FORWARD", "2": "BACKWARD"}.get(str(number), str(number))
    if word not in ("NONE", "FORWARD", "BACKWARD"):
        raise call.fail(f"a barrier allows NONE, FORWARD or BACKWARD, not {word!r}")
    return call.emit("propagation_barrier", *call.take(1), direction=Symbol(word.lower()))


@reads("sdy.named_computation")
def _named_computation(call: Call) -> Values:
    """The body in place; what is said about its parameters and results become constraints."""
    if len(call.blocks) != 1:
        raise call.fail("a named computation has one body")
    (block,) = call.blocks
    params = [*block.params, *(param for group in call.params for param in group)]
    if len(params) != len(call.operands):
        raise call.fail("a named computation takes as many parameters as operands")
    reader = call.reader
    outer, reader.values = reader.values, {}
    ins = shardings(call, "in_shardings", [value.type for value in call.operands])
    for param, value, said in zip(params, call.operands, ins, strict=True):
        if reader.types.type(param.type) != value.type:
            raise call.fail(f"this parameter is given {value.type}", param.type)
        reader.bind(str(param.name), reader.constrained(call, value, said), param.name)
    returns = reader.inline(block)
    reader.values = outer
    if [value.type for value in returns] != call.results:
        raise call.fail("a named computation does not return what it states")
    outs = shardings(call, "out_shardings", call.results)
    return tuple(
        reader.constrained(call, value, said) for value, said in zip(returns, outs, strict=True)
    )


def shardings(call: Call, key: str, types: list[Any]) -> list[Sharding | None]:
    """`in_shardings=[<...>, <...>]`, or the same in the generic spelling."""
    if key not in call.attrs:
        return [None] * len(types)
    node = call.attr(key)
    if isinstance(node, Token):
        return list(call.reader.shardings.per_value(node, types))
    items = call.types.items(node)
    if len(items) != len(types):
        raise call.fail(f"{key} has {len(items)} shardings for {len(types)} values")
    for item in items:
        if not isinstance(item, Token):
            raise Unsupported("its shardings are not written as shardings")
    read = call.reader.shardings.sharding
    return [read(item, type) for item, type in zip(items, types, strict=True)]
