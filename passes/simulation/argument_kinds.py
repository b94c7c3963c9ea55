"""Kinds of the arguments of a step: parameters, optimizer state, and others.

An argument with a result of its type is state: the step returns its next value. Parameters are the
state on which other results depend, such as the loss; the rest is optimizer state. If all results
are state, parameters are the state on which a matrix product, a convolution or a gather depends.
"""

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

from shardir import ops
from shardir.cost.memory import used_by
from shardir.ir.module import Block, Function, Op, Value
from shardir.ir.sharding import Sharding
from shardir.ir.types import TensorType


class MemoryKind(StrEnum):
    """The kinds of memory that a step uses."""

    ARGUMENTS = "arguments"
    PARAMETERS = "parameters"
    OPTIMIZER_STATE = "optimizer state"
    ACTIVATIONS = "activations"
    TEMPORARIES = "temporaries"
    RESULTS = "results"


_CONTRACTIONS = (ops.dot, ops.convolution, ops.gather)
_GlobalType = tuple[TensorType, Sharding | None]


def kinds_of_arguments(function: Function) -> dict[Value, MemoryKind]:
    """Return the kind of each argument of a step."""
    body = function.body
    if function.spmd is None:
        inputs: list[_GlobalType] = [(value.type, value.sharding) for value in body.params]
        outputs: list[_GlobalType] = [(value.type, value.sharding) for value in body.returns]
    else:
        inputs = [(each.type, each.sharding) for each in function.spmd.params]
        outputs = [(each.type, each.sharding) for each in function.spmd.results]
    left = Counter(each for each in outputs if each[0].rank)
    state = set()
    taken: Counter[_GlobalType] = Counter()
    for value, each in zip(body.params, inputs, strict=True):
        if left[each]:
            left[each] -= 1
            taken[each] += 1
            state.add(value)
    others = []
    for value, each in zip(body.returns, outputs, strict=True):
        if taken[each]:
            taken[each] -= 1
        else:
            others.append(value)
    if not others:
        others = [v for op in body.ops if _contains_contraction(op) for v in op.uses()]
    needed = needed_values(body, others)
    return {
        value: MemoryKind.ARGUMENTS
        if value not in state
        else MemoryKind.PARAMETERS
        if value in needed
        else MemoryKind.OPTIMIZER_STATE
        for value in body.params
    }


def _contains_contraction(op: Op) -> bool:
    return op.spec in _CONTRACTIONS or any(
        _contains_contraction(inner) for block in op.blocks for inner in block.ops
    )


def needed_values(block: Block, outputs: Iterable[Value]) -> set[Value]:
    """Return the values on which the given values of a block depend."""
    needed = set(outputs)
    for op in reversed(block.ops):
        if needed.isdisjoint(op.results):
            continue
        if op.spec is ops.scan:
            needed |= _needed_by_scan(op, needed)
        elif op.spec is ops.optimization_barrier:
            pairs = zip(op.operands, op.results, strict=True)
            needed.update(operand for operand, result in pairs if result in needed)
        else:
            needed.update(used_by(op))
    return needed


def _needed_by_scan(op: Op, needed: set[Value]) -> set[Value]:
    """Return the values that a scan needs for those of its results that are needed."""
    (body,) = op.blocks
    carries: int = op.attrs["carries"]
    returned = {body.returns[i] for i, result in enumerate(op.results) if result in needed}
    while True:
        inside = needed_values(body, returned)
        more = {body.returns[i] for i in range(carries) if body.params[i] in inside}
        if more <= returned:
            break
        returned |= more
    operands = {x for x, param in zip(op.operands, body.params, strict=True) if param in inside}
    return operands | (inside & set(body.captures()))
