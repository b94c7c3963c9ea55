"""Shardings of the operands, block parameters, yielded values and results of region operations.

All values that an edge ties together (the operand, the parameter, the yielded value and the result
of a loop carry) have one sharding, that of the edge's owner. The arrays that a scan slices or
stacks have one more leading dimension, which is unsharded: each step needs its slice on all
devices.
"""

from collections.abc import Callable
from dataclasses import replace

from shardir.ir.module import Block, Op, Value
from shardir.ir.sharding import REPLICATED_DIM, Sharding


class BlockShardings:
    """Required shardings of each operand, parameter, yielded value and result of `op`.

    `settled` returns the final sharding of a value, `whole` the unsharded sharding of a value,
    which applies to values outside of edges (loop conditions and branch indices).
    """

    def __init__(
        self,
        op: Op,
        settled: Callable[[Value], Sharding],
        whole: Callable[[Value], Sharding],
    ) -> None:
        # Edges name values, and one value may enter an operation in several positions. A distinct
        # copy for each position keeps the positions distinguishable.
        operands = tuple(replace(value) for value in op.operands)
        blocks = tuple(Block(b.params, (), tuple(map(replace, b.returns))) for b in op.blocks)
        places = replace(op, operands=operands, blocks=blocks)
        needs: dict[Value, Sharding] = {}
        for edge in places.edges():
            owner = edge.targets[0]
            cut = replace(settled(owner), unreduced=(), reduction="add")
            if owner in edge.stacked:
                cut = replace(cut, dims=cut.dims[1:])
            for value in (*edge.sources, *edge.targets):
                stacked = value in edge.stacked
                needs[value] = replace(cut, dims=(REPLICATED_DIM, *cut.dims)) if stacked else cut

        def required(value: Value) -> Sharding:
            return needs.get(value) or whole(value)

        self.operands = tuple(map(required, operands))
        self.params = {p: required(p) for b in blocks for p in b.params}
        self.returns = tuple(tuple(map(required, b.returns)) for b in blocks)
        self.results = tuple(map(required, op.results))
