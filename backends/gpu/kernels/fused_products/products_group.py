"""A group of fused products: its axes, and the sides of its tiles."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from shardir.backends.gpu.kernels.fused_products.score_passes import ScorePass, plan_score_passes
from shardir.backends.gpu.kernels.group import FusedGroup, name_group
from shardir.backends.gpu.kernels.group_layout import GroupLayout
from shardir.backends.gpu.kernels.tile_sides import TileSide
from shardir.backends.gpu.kernels.tile_sizes import next_power_of_two
from shardir.ir.module import Op, Value
from shardir.ops.control_flow.fused_products import (
    ROW_REDUCTIONS,
    ProductNest,
    build_product_nest,
)
from shardir.ops.control_flow.loop_unification import live_values, non_unit_dims
from shardir.ops.shape.create import iota

MIN_PRODUCT_EXTENT = 16
"""Minimum extent of each loop of a product of tiles (`tl.dot`)."""


@dataclass(frozen=True)
class ProductsGroup:
    """The names, the loops, and the passes of an operation `fused_products`."""

    named: FusedGroup
    nest: ProductNest
    ops: tuple[Op, ...]
    """The operations that results depend on."""

    @cached_property
    def makers(self) -> Mapping[Value, Op]:
        return {op.result: op for op in self.ops}

    @cached_property
    def first_params(self) -> Mapping[Value, Value]:
        """The first parameter with the operand and the loops of each parameter."""
        found: dict[object, Value] = {}
        pairs = zip(self.named.block.params, self.named.op.operands, strict=True)
        return {
            param: found.setdefault((operand, self.nest.mappings[param]), param)
            for param, operand in pairs
        }

    @cached_property
    def passes(self) -> tuple[ScorePass, ...]:
        """The passes of the kernel of rows."""
        return plan_score_passes(self.nest, [op for op in self.ops if op not in self.row_sums])

    @property
    def column_sums(self) -> tuple[Op, ...]:
        return tuple(op for op in self.nest.sums if self.nest.is_column_sum(op))

    @property
    def row_sums(self) -> tuple[Op, ...]:
        return tuple(op for op in self.nest.sums if not self.nest.is_column_sum(op))

    @cached_property
    def row_values(self) -> tuple[Value, ...]:
        """Values of rows that depend on reductions and that row sums use: the kernel of rows stores
        them for the kernel of columns."""
        late = set[Value]()
        for op in self.ops:
            if op.spec in ROW_REDUCTIONS or late.intersection(op.operands):
                late.add(op.result)
        found: dict[Value, None] = {}
        seen = set[Value]()
        pending = [self.nest.scores_and_matrix(op)[0] for op in self.row_sums]
        while pending:
            value = pending.pop()
            if value in seen:
                continue
            seen.add(value)
            if value in late and self.nest.column_loop not in self.nest.mappings[value]:
                found[value] = None
            elif value in self.makers:
                pending += self.makers[value].operands
        return tuple(value for value in self.named.block.values() if value in found)

    @cached_property
    def parallel_loops(self) -> tuple[int, ...]:
        """The batch loops of row sums."""
        nest = self.nest
        return tuple(
            loop
            for loop in nest.batch_loops
            if all(loop in nest.mappings[op.result] for op in self.row_sums)
        )

    @cached_property
    def batch_names(self) -> Mapping[int, str]:
        """The index variable of each batch loop: its letter in the first product."""
        op = self.nest.score_products[0]
        letters = op.attrs["dims"].partition("->")[2]
        loops = self.nest.mappings[op.result]
        dims = non_unit_dims(op.result.type)
        return {
            loop: self.named.own_name(letters[dim]) for dim, loop in zip(dims, loops, strict=True)
        }

    def make_side(self, loop: int, length: int, place: int) -> TileSide:
        """Return a side of a tile along the row or the column loop; `place` is its dimension."""
        word, block = ("rows", "ROWS") if loop == self.nest.row_loop else ("columns", "COLUMNS")
        size = self.nest.extents[loop]
        slot = "[:, None]" if place == 0 else "[None, :]"
        mask = self.named.own_name(f"{word[:-1]}_mask") if size % length else ""
        name = self.named.own_name(word)
        return TileSide(f"{name}{slot}", (loop,), size, length, block, slot, mask)

    def batch_side(self, loop: int) -> TileSide:
        """Return the side of a batch loop, of which a tile has one index."""
        return TileSide(self.batch_names[loop], (loop,), self.nest.extents[loop], 1, "")

    def padded_features(self, value: Value) -> int:
        """Return the length of the feature loop of a matrix in tiles."""
        extent = self.nest.extents[self.nest.feature_loop(value)]
        return max(next_power_of_two(extent), MIN_PRODUCT_EXTENT)


def make_products_group(op: Op, name: str) -> ProductsGroup:
    """Return the group of an operation `fused_products`."""
    (block,) = op.blocks
    nest = build_product_nest(block)
    live = live_values(block)
    ops = tuple(op for op in block.ops if op.results[0] in live)
    return ProductsGroup(name_group(op, name, _layout(nest, ops)), nest, ops)


def _layout(nest: ProductNest, ops: tuple[Op, ...]) -> GroupLayout:
    """Return the loops as axes, and the strides of values that kernels may load or store."""
    lies = {
        value: nest.mappings[value]
        for value in (*nest.block.params, *nest.block.returns, *(op.result for op in ops))
    }
    strides: dict[Value, Mapping[int, int]] = {}
    for value, loops in lies.items():
        step = 1
        own = dict[int, int]()
        for loop in reversed(loops):
            own[loop] = step
            step *= nest.extents[loop]
        strides[value] = own
    for op in ops:
        if op.spec is iota:
            along = dict(zip(non_unit_dims(op.result.type), lies[op.result], strict=True))
            axis = along.get(op.attrs["dim"])
            strides[op.result] = {} if axis is None else {axis: 1}
    return GroupLayout(nest.extents, frozenset([nest.column_loop]), lies, strides)
