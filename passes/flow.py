"""The shardings at the borders of an operation's blocks.

What flows along an edge (into a loop, round it, and out of it) has one sharding everywhere, that
of the edge's owner. What a scan takes apart or puts together has one more dimension in front,
which is whole: every step needs its slice on all devices.
"""

from collections.abc import Callable
from dataclasses import replace

from shardir.ir import Block, Op, Value
from shardir.placement import WHOLE, Sharding


class Flow:
    """What each operand, parameter, yielded value and result of `op` must be cut like.

    `settled` tells the sharding of a value as it will be, `whole` that of a whole value, which is
    what every value outside edges is (decisions of loops and branches).
    """

    def __init__(
        self,
        op: Op,
        settled: Callable[[Value], Sharding],
        whole: Callable[[Value], Sharding],
    ) -> None:
        # Edges name values, and one value may enter an operation in several places. With a value
        # of its own in each place the edges tell the places apart.
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
                needs[value] = replace(cut, dims=(WHOLE, *cut.dims)) if stacked else cut

        def need(value: Value) -> Sharding:
            return needs.get(value) or whole(value)

        self.operands = tuple(map(need, operands))
        self.params = {p: need(p) for b in blocks for p in b.params}
        self.returns = tuple(tuple(map(need, b.returns)) for b in blocks)
        self.results = tuple(map(need, op.results))
