"""Fold consecutive reductions into one.

before: `%g.partial = dot(%h, %d, dims="abi,abo->aio") : f32[4, 6, 3]`
        `%g = sum(%g.partial, dims=[0]) : f32[6, 3]`
after:  `%g = dot(%h, %d, dims="abi,abo->io") : f32[6, 3]`

The sum over devices of per-device contractions becomes one contraction, and likewise for filter
gradients; a sum of sums becomes one sum, a maximum of maxima one maximum. The pass looks through
reshapes and transposes in between, and changes only values without other uses. Sums may be added in
another order, and in the accumulator of a contraction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shardir import ops as specs
from shardir.ir.builder import Builder
from shardir.ir.module import Block, Function, Module, Op, Value
from shardir.passes.pipeline import Pass
from shardir.passes.rewriting import use_counts, used_names
from shardir.passes.simplify import reduction_folding
from shardir.passes.simplify.reduction_folding import FOLDED_REDUCTIONS
from shardir.passes.simplify.view_folding import views
from shardir.passes.simplify.view_folding.views import View, ViewDims, ViewPiece


@dataclass(frozen=True)
class FoldReductions(Pass, name="fold-reductions"):
    """Fold a reduction into the reduction or contraction that makes its operand."""

    def __call__(self, module: Module) -> Module:
        return replace(module, functions=tuple(map(_fold_function, module.functions)))


def _fold_function(function: Function) -> Function:
    summer = _ReductionFolder(Builder(used_names(function)), use_counts(function.body))
    return replace(function, body=summer.block(function.body))


class _ReductionFolder:
    def __init__(self, b: Builder, uses: Mapping[Value, int]) -> None:
        self.b, self.uses = b, uses
        self.makers: dict[Value, Op] = {}
        self.seen: dict[Value, View] = {}

    def block(self, block: Block) -> Block:
        ops: list[Op] = []
        outer, self.b.ops = self.b.ops, ops
        for op in block.ops:
            if op.blocks:
                op = replace(op, blocks=tuple(map(self.block, op.blocks)))
            if op.spec not in FOLDED_REDUCTIONS or not self.try_fold(op):
                self.b.append(op)
                self.record(op)
        self.b.ops = outer
        return Block(block.params, tuple(ops), block.returns)

    def record(self, op: Op) -> None:
        for result in op.results:
            self.makers[result] = op
        if op.spec not in (specs.transpose, specs.reshape) or not op.result.type.size:
            return
        if self.uses.get(op.operands[0]) == 1:
            x = self.get(op.operands[0])
            dims: ViewDims | None
            if op.spec is specs.transpose:
                dims = tuple(x.dims[d] for d in op.attrs["perm"])
            else:
                dims = views.reshape_dims(x.dims, op.result.type.shape)
            if dims is not None:
                self.seen[op.result] = View(x.base, dims)

    def get(self, value: Value) -> View:
        view = self.seen.get(value)
        return views.identity_view(value) if view is None else view

    def maker(self, value: Value) -> Op | None:
        return self.makers.get(value) if self.uses.get(value, 1) == 1 else None

    def try_fold(self, op: Op) -> bool:
        """Fold a reduction into the operation that makes its operand; return whether that was
        possible."""
        (x,) = op.operands
        view = self.get(x)
        maker = self.maker(view.base)
        if maker is None or self.uses.get(x) != 1 or not x.type.size:
            return False
        gone = [piece for d in op.attrs["dims"] for piece in view.dims[d]]
        left = tuple(each for d, each in enumerate(view.dims) if d not in op.attrs["dims"])
        dims = _complete_dims(view.base, gone)
        self.b.loc, self.b.why = op.loc, op.why
        folded = None
        if dims and maker.spec is specs.scan and op.spec is specs.sum_:
            folded = self.reduce_inside_scan(maker, view.base, dims, op.result)
            if folded is not None:
                self.remove_views(x, view.base)
        elif dims:
            folded = reduction_folding.fold_reduction(self.b, self.maker, view.base, op.name, dims)
        elif op.spec is specs.sum_:
            folded = reduction_folding.fold_sum_over_groups(self.b, maker, gone)
        if folded is None:
            return False
        rest = views.materialize_view(self.b, _remaining_view(folded, dims or (), left))
        if rest is not op.result:
            last = self.b.ops[-1]
            assert last.results == (rest,)
            self.b.ops[-1] = replace(last, results=(op.result,))
        self.record(self.b.ops[-1])
        return True

    def remove_views(self, value: Value, base: Value) -> None:
        """Remove the operations that made a value from a base that no longer exists."""
        while value is not base:
            maker = self.makers[value]
            self.b.ops.remove(maker)
            (value,) = maker.operands

    def reduce_inside_scan(
        self, scan: Op, stacked: Value, dims: Sequence[int], result: Value
    ) -> Value | None:
        """Reduce the stacked results of a scan inside of the scan; return `result` itself if that
        suffices."""
        position = next((i for i, op in enumerate(self.b.ops) if op is scan), None)
        if position is None:
            return None
        new_op = reduction_folding.fold_sum_into_scan(self.b, scan, stacked, dims)
        if new_op is None:
            return None
        (block,) = new_op.blocks
        at = scan.results.index(stacked)
        value = new_op.results[at]
        if value.type == result.type:
            value = result
        results = (*new_op.results[:at], value, *new_op.results[at + 1 :])
        new_op = replace(new_op, results=results, blocks=(self.block(block),))
        self.b.ops[position] = new_op
        for each in results:
            self.makers[each] = new_op
        return value


def _complete_dims(base: Value, gone: Sequence[ViewPiece]) -> tuple[int, ...] | None:
    """Return the dimensions of a base that `gone` covers completely, else `None`."""
    walked: dict[int, int] = {}
    for piece in gone:
        walked[piece.dim] = walked.get(piece.dim, 1) * piece.size
    if any(base.type.shape[d] != n for d, n in walked.items()):
        return None
    return tuple(sorted(walked))


def _remaining_view(base: Value, gone: Sequence[int], left: ViewDims) -> View:
    """Return the remaining view after its base has lost the dimensions `gone`."""
    remaining_dims = [d for d in range(base.type.rank + len(gone)) if d not in gone]
    dims = tuple(
        tuple(piece._replace(dim=remaining_dims.index(piece.dim)) for piece in pieces)
        for pieces in left
    )
    return View(base, dims)
