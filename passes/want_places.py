"""Say of a sort which places are read, where they are few: a target need not sort the others.

before: `%0 = sort(%x, dim=0, keys=1, stable=true) : f32[99]`
        `%1 = slice(%0, starts=[49], strides=[1]) : f32[1]`
after:  `%0 = sort(%x, dim=0, keys=1, stable=true, wanted=[49]) : f32[99]`
        `%1 = slice(%0, starts=[49], strides=[1]) : f32[1]`

Medians and quantiles are such sorts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shardir.ir import Block, Function, Module, Op
from shardir.passes.pipeline import Pass
from shardir.passes.program import use_counts

FEW = 16
"""So many places at most are named."""


@dataclass(frozen=True)
class WantPlaces(Pass, name="want-places"):
    """Name the places of sorted tensors that slices read, if nothing else reads them."""

    def __call__(self, module: Module) -> Module:
        return replace(module, functions=tuple(map(_function, module.functions)))


def _function(function: Function) -> Function:
    if not any(op.name == "sort" for op in function.body.walk()):
        return function
    uses = use_counts(function.body)

    def block(old: Block) -> Block:
        readers: dict[Op, list[Op]] = {
            op: [] for op in old.ops if op.name == "sort" and len(op.results) == 1
        }
        made = {op.result: op for op in readers}
        for op in old.ops:
            if op.name == "slice" and op.operands[0] in made:
                readers[made[op.operands[0]]].append(op)
        ops = []
        for op in old.ops:
            if op.blocks:
                op = replace(op, blocks=tuple(map(block, op.blocks)))
            slices = readers.get(op, [])
            if slices and len(slices) == uses[op.result]:
                wanted = _places(slices, op.attrs["dim"])
                if len(wanted) <= FEW:
                    op = replace(op, attrs={**op.attrs, "wanted": wanted})
            ops.append(op)
        return replace(old, ops=tuple(ops))

    return replace(function, body=block(function.body))


def _places(slices: Sequence[Op], dim: int) -> tuple[int, ...]:
    """Where along a dimension they read; more than `FEW` if those are too many."""
    found: set[int] = set()
    for op in slices:
        start, stride = op.attrs["starts"][dim], op.attrs["strides"][dim]
        found.update(start + i * stride for i in range(min(op.result.type.shape[dim], FEW + 1)))
    return tuple(sorted(found))
