"""Reshard each tensor to the shardings in which it is needed by the cheapest tree of reshards.

before: `%x.columns = reshard(%x)`, `%x.gathered = reshard(%x)`, where both exchange data
after:  `%x.gathered = reshard(%x)`, `%x.columns = reshard(%x.gathered)`, which is a slice

Runs after `sink-reductions`. All shardings in which operations need one tensor form a tree rooted
in the sharding in which it is computed; each edge is a `reshard`. The tree grows from the root,
cheapest edge first (Prim's algorithm), and replaces the existing reshards if it sends less: chains
of reshards become one, an unreduced value that is needed sharded is reduce-scattered, a gather is
reused, and a reshard of a loop-invariant tensor is hoisted out of the loop.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

from shardir import ops
from shardir.ir.builder import substitute
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Function, Module, Op, Value
from shardir.ir.sharding import Sharding
from shardir.passes.def_use import ASSUMED_WHILE_ITERATIONS, UNANALYZED_REGIONS
from shardir.passes.global_programs import rebuild_global_programs
from shardir.passes.pipeline import Pass
from shardir.passes.resharding.cost import reshard_cost, scalar_cost, sharding_or_unsharded
from shardir.passes.resharding.planner import same_placement
from shardir.passes.resharding.reassociate import ReshardReassociation


@dataclass(frozen=True)
class ShareReshards(Pass, name="share-reshards"):
    """Reshard each tensor by the cheapest tree of reshards."""

    def __call__(self, module: Module) -> Module:
        return rebuild_global_programs(module, _share_reshards)


@dataclass(eq=False, slots=True)
class _PlacedReshard:
    """A `reshard`: its index among the operations of the home block, and how often it runs
    there."""

    op: Op
    at: int
    times: int


@dataclass(eq=False, slots=True)
class _ReshardedTensor:
    """One tensor, computed as `root`, and its reshards within the home block, in order."""

    root: Value
    home: Block
    moves: list[_PlacedReshard] = field(default_factory=list)
    needed: dict[Value, int] = field(default_factory=dict)
    """Reshard results that other operations use, and the index of the first such use."""


def _share_reshards(function: Function, mesh: Mesh) -> Function:
    function = ReshardReassociation(function, mesh).rewrite_function()
    survey = _ReshardSurvey()
    survey.block(function.body, [])
    planner = _ReshardTreePlanner(mesh.name, survey.maker)
    for tensor in survey.tensors:
        planner.plan(tensor)
    if not planner.better:
        return function
    body = substitute(planner.rewrite_block(function.body), planner.final_replacements())
    return replace(function, body=body)


@dataclass(eq=False, slots=True)
class _BlockFrame:
    """An enclosing block of the current operation: its index, and how often it runs."""

    block: Block
    times: int
    at: int = 0


class _ReshardSurvey:
    """Collects the reshards of every tensor."""

    def __init__(self) -> None:
        self.tensors: list[_ReshardedTensor] = []
        self.of: dict[Value, _ReshardedTensor] = {}
        self.home: dict[Value, Block] = {}
        self.maker: dict[Value, Op] = {}

    def block(self, block: Block, around: list[_BlockFrame], times: int = 1) -> None:
        """Analyze a block; reshards may be hoisted to the blocks `around`."""
        frame = _BlockFrame(block, times)
        frames = [*around, frame]
        self.home.update(dict.fromkeys(block.values(), block))
        for frame.at, op in enumerate(block.ops):
            if op.spec is ops.reshard:
                self.move(op, frames)
                continue
            self.maker.update(dict.fromkeys(op.results, op))
            self.use(op.operands, frames)
            for inner in op.blocks:
                if op.spec in UNANALYZED_REGIONS:
                    self.use(inner.captures(), frames)
                    self.block(inner, [])
                else:
                    length = op.attrs["length"] if op.spec is ops.scan else ASSUMED_WHILE_ITERATIONS
                    self.block(inner, frames, max(length, 1))
        frame.at = len(block.ops)
        self.use(block.returns, frames)

    def move(self, op: Op, frames: list[_BlockFrame]) -> None:
        value = op.operands[0]
        blocks = [frame.block for frame in frames]
        tensor = self.of.get(value)
        if tensor is None or tensor.home not in blocks:
            home = self.home.get(value)
            tensor = _ReshardedTensor(value, home if home in blocks else blocks[0])
            self.of[value] = tensor
            self.tensors.append(tensor)
        level = blocks.index(tensor.home)
        times = prod(frame.times for frame in frames[level + 1 :])
        tensor.moves.append(_PlacedReshard(op, frames[level].at, times))
        self.of[op.result] = tensor

    def use(self, values: Sequence[Value], frames: list[_BlockFrame]) -> None:
        for value in values:
            tensor = self.of.get(value)
            if tensor is None or value is tensor.root:
                continue
            position = next((f.at for f in frames if f.block is tensor.home), 0)
            tensor.needed.setdefault(value, position)


class _ReshardTreePlanner:
    """Plans the reshards of every tensor anew, and keeps the plan if it sends less."""

    def __init__(self, mesh: str, makers: dict[Value, Op]) -> None:
        self.mesh, self.makers = mesh, makers
        self.dropped: set[Op] = set()
        self.added: dict[tuple[Block, int], list[Op]] = {}
        self.new: dict[Value, Value] = {}
        self.better = False

    def place(self, value: Value) -> Sharding:
        return sharding_or_unsharded(value, self.mesh)

    def cost(self, source: Value, target: Value) -> int:
        return scalar_cost(reshard_cost(self.place(source), self.place(target), source.type), 0)

    def plan(self, tensor: _ReshardedTensor) -> None:
        now = sum(self.cost(m.op.operands[0], m.op.result) * m.times for m in tensor.moves)
        if not now:
            return
        places = self.values_by_sharding(tensor)
        free = self.repeatable_operation(tensor.root, list(places))
        if free is not None:
            self.better = True
            self.dropped.update(move.op for move in tensor.moves)
            for value, same in places.items():
                first_use = min(tensor.needed[v] for v in same)
                again = replace(free, results=(value,))
                self.added.setdefault((tensor.home, first_use), []).append(again)
                self.new.update((other, value) for other in same if other is not value)
            return
        parents, weighs = self.tree(tensor.root, list(places))
        if weighs >= now:
            return
        self.better = True
        first = {value: min(tensor.needed[v] for v in same) for value, same in places.items()}
        for value in reversed(parents):
            parent = parents[value]
            if parent in first:
                first[parent] = min(first[parent], first[value])
        maker = {move.op.result: move.op for move in tensor.moves}
        self.dropped.update(maker.values())
        for value, parent in parents.items():
            for other in places[value]:
                if other is not value:
                    self.new[other] = value
            if same_placement(self.place(value), self.place(parent)):
                self.new[value] = parent
                continue
            move = replace(maker[value], operands=(parent,), why=_combined_why(maker, value))
            self.added.setdefault((tensor.home, first[value]), []).append(move)

    def repeatable_operation(self, root: Value, places: list[Value]) -> Op | None:
        """Return the operation that computes a tensor if it can be repeated for every sharding."""
        maker = self.makers.get(root)
        if maker is None or any(self.place(v).unreduced for v in (root, *places)):
            return None
        is_spread = maker.spec is ops.broadcast and not maker.operands[0].type.rank
        return maker if is_spread or maker.spec in (ops.constant, ops.iota) else None

    def values_by_sharding(self, tensor: _ReshardedTensor) -> dict[Value, list[Value]]:
        """Return one value for each needed sharding, with all values of that sharding."""
        result: dict[Value, list[Value]] = {}
        for value in tensor.needed:
            sharding = self.place(value)
            same = next((v for v in result if same_placement(self.place(v), sharding)), value)
            result.setdefault(same, []).append(value)
        return result

    def tree(self, root: Value, places: list[Value]) -> tuple[dict[Value, Value], int]:
        """Return the parent of each sharding in order of the reshards, and the weight of the tree.

        The tree is grown with each sharding as the first one, since an expensive first edge may pay
        off.
        """
        grown = (self.grow_tree(root, [v, *(w for w in places if w is not v)]) for v in places)
        return min(grown, key=lambda tree: tree[1], default=({}, 0))

    def grow_tree(self, root: Value, places: list[Value]) -> tuple[dict[Value, Value], int]:
        """Return the tree that begins with the first sharding and continues with the cheapest
        edge."""
        parents: dict[Value, Value] = {}
        reach = {value: (self.cost(root, value), root) for value in places}
        value, total = places[0], 0
        while reach:
            cost, parents[value] = reach.pop(value)
            total += cost
            for other, (old_cost, _) in list(reach.items()):
                if (again := self.cost(value, other)) < old_cost:
                    reach[other] = again, value
            value = min(reach, key=lambda v: reach[v][0], default=value)
        return parents, total

    def rewrite_block(self, block: Block) -> Block:
        new_ops: list[Op] = []
        for at, op in enumerate(block.ops):
            new_ops += self.added.get((block, at), ())
            if op in self.dropped:
                continue
            if op.blocks:
                op = replace(op, blocks=tuple(map(self.rewrite_block, op.blocks)))
            new_ops.append(op)
        new_ops += self.added.get((block, len(block.ops)), ())
        return Block(block.params, tuple(new_ops), block.returns)

    def final_replacements(self) -> dict[Value, Value]:
        """Return the final replacement of each value."""

        def last(value: Value) -> Value:
            while value in self.new:
                value = self.new[value]
            return value

        return {value: last(value) for value in self.new}


def _combined_why(maker: dict[Value, Op], value: Value) -> str:
    """Return the `why` of a reshard; for a chain of reshards, the texts of all of them."""
    reasons: list[str] = []
    while value in maker:
        reasons.append(maker[value].why)
        value = maker[value].operands[0]
    return "; ".join(dict.fromkeys(filter(None, reasons)))
