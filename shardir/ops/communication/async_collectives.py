"""Asynchronous collectives, which overlap communication with computation.

`%t = all-gather-start(%x, dim=0, axes=[data])` starts the transfer, and `%y = done(%t)` waits for
it. The only use of a started value is exactly one `done` in the same block. The result equals that
of the synchronous collective.
"""

from collections.abc import Iterator

import numpy as np

from shardir.ir.module import Block, Op
from shardir.ir.operation import OPS, OpSpec, Result, define_op
from shardir.ir.types import NumpyArray, TensorType
from shardir.op_rules.vma import join_varying
from shardir.ops.communication import collectives as collectives  # declares the collectives

START_SUFFIX = "-start"


def _define_start(spec: OpSpec) -> OpSpec:
    return define_op(
        spec.name + START_SUFFIX,
        type=spec.type,
        attributes=spec.attributes,
        exchange=spec.exchange,
        vma=spec.vma,
        arithmetic=spec.arithmetic,
        collective=True,
        spmd=True,
    )


START_OPS: dict[OpSpec, OpSpec] = {
    spec: _define_start(spec) for spec in list(OPS.values()) if spec.collective
}
"""The start operation of each collective."""


def _done_type(x: TensorType, *, result: Result) -> TensorType:
    return x


def _done(x: NumpyArray, *, result: TensorType) -> NumpyArray:
    return np.asarray(x)


done = define_op(
    "done", type=_done_type, reference=_done, vma=join_varying, arithmetic=None, spmd=True
)
"""`done(x)`: the result of a started collective."""


_SYNCHRONOUS = {start: spec for spec, start in START_OPS.items()}


def is_started(op: Op) -> bool:
    """Return whether an operation starts a collective."""
    return op.spec in _SYNCHRONOUS


def synchronous_spec(op: Op) -> OpSpec:
    """Return the declaration of the collective, for a synchronous or a started one."""
    return _SYNCHRONOUS.get(op.spec, op.spec)


def kind_of(op: Op) -> str:
    """Return the name of the collective, for a synchronous or a started one."""
    return synchronous_spec(op).name


def find_start_misuses(block: Block) -> Iterator[tuple[Op, str]]:
    """Yield the misuses of started collectives in a block: the operation and a message."""
    waiting = {op.result: op for op in block.ops if is_started(op) and len(op.results) == 1}
    taken = dict.fromkeys(waiting, 0)
    for op in block.ops:
        if op.spec is done and op.operands and op.operands[0] not in waiting:
            other = op.operands[0].name
            yield (
                op,
                f"done takes the value of a collective started in this block, not %{other}",
            )
        for value in op.uses() if waiting else ():
            if value not in waiting:
                continue
            if op.spec is done:
                taken[value] += 1
            else:
                yield op, f"%{value.name} is not complete; use the result of its done"
    for value in block.returns:
        if value in waiting:
            yield (
                waiting[value],
                f"%{value.name} is not complete; return the result of its done",
            )
    for value, times in taken.items():
        if times != 1:
            yield waiting[value], f"%{value.name} is taken by {times} done; exactly one takes it"
