"""Annotate sorts of which a program reads only a few positions, or only the permutation.

before: `%0 = sort(%x, dim=0, keys=1, stable=true) : f32[99]`
        `%1 = slice(%0, starts=[49], strides=[1]) : f32[1]`
after:  `%0 = sort(%x, dim=0, keys=1, stable=true, positions=[49]) : f32[99]`
        `%1 = slice(%0, starts=[49], strides=[1]) : f32[1]`

Medians and quantiles are such sorts. If a sort carries indices along, as `argsort` does, and only
these are read, the attribute `order` states which operand they are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shardir import ops as specs
from shardir.ir.module import Block, Function, Module, Op, Value
from shardir.passes.pipeline import Pass
from shardir.passes.rewriting import use_counts

MAX_READ_POSITIONS = 16
"""Maximum number of positions that the attribute `positions` lists."""


@dataclass(frozen=True)
class AnnotatePartialSorts(Pass, name="annotate-partial-sorts"):
    """Annotate sorts of which only some positions or only the permutation are read.

    `positions` lists the positions that slices read if nothing else reads the result; `order`
    states the operand that holds the indices if only these are read.
    """

    def __call__(self, module: Module) -> Module:
        return replace(module, functions=tuple(map(_annotate_function, module.functions)))


def _annotate_function(function: Function) -> Function:
    if not any(op.spec is specs.sort for op in function.body.walk()):
        return function
    uses = use_counts(function.body)

    def block(old: Block) -> Block:
        readers: dict[Op, list[Op]] = {
            op: [] for op in old.ops if op.spec is specs.sort and len(op.results) == 1
        }
        definitions = {op.result: op for op in readers}
        for op in old.ops:
            if op.spec is specs.slice_ and op.operands[0] in definitions:
                readers[definitions[op.operands[0]]].append(op)
        iotas = {op.result: op.attrs["dim"] for op in old.ops if op.spec is specs.iota}
        ops = []
        for op in old.ops:
            if op.spec is specs.sort:
                places = _permutation_operand(
                    op, [i for i, r in enumerate(op.results) if uses[r]], iotas
                )
                op = op if places is None else replace(op, attrs={**op.attrs, "order": places})
            if op.blocks:
                op = replace(op, blocks=tuple(map(block, op.blocks)))
            slices = readers.get(op, [])
            if slices and len(slices) == uses[op.result]:
                read_positions = _read_positions(slices, op.attrs["dim"])
                if len(read_positions) <= MAX_READ_POSITIONS:
                    op = replace(op, attrs={**op.attrs, "positions": read_positions})
            ops.append(op)
        return replace(old, ops=tuple(ops))

    return replace(function, body=block(function.body))


def _permutation_operand(op: Op, read: Sequence[int], iotas: Mapping[Value, int]) -> int | None:
    """Return the index of the only result that is read if it is the permutation, else `None`."""
    if len(read) != 1 or read[0] < op.attrs.get("keys", 1):
        return None
    places = op.operands[read[0]]
    along = iotas.get(places) == op.attrs["dim"] and places.type.dtype == "i32"
    return read[0] if along else None


def _read_positions(slices: Sequence[Op], dim: int) -> tuple[int, ...]:
    """Return the positions that slices read along a dimension.

    More than `MAX_READ_POSITIONS` of them means that there are too many.
    """
    result: set[int] = set()
    for op in slices:
        start, stride = op.attrs["starts"][dim], op.attrs["strides"][dim]
        result.update(
            start + i * stride
            for i in range(min(op.result.type.shape[dim], MAX_READ_POSITIONS + 1))
        )
    return tuple(sorted(result))
