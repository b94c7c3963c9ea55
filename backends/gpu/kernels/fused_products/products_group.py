"""A group of fused products: its axes, and the sides of its tiles."""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import cached_property

from shardir.backends.gpu.kernels.fused_products.score_passes import (
    ScorePass,
    find_exponential_sums,
    plan_score_passes,
    source_value,
)
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
    sums: Set[int] = frozenset()
    """The positions of operands that are sums of exponentials."""

    @cached_property
    def makers(self) -> Mapping[Value, Op]:
        return {op.result: op for op in self.ops}

    @cached_property
    def first_params(self) -> Mapping[Value, Value]:
        """The first parameter with the operand and the loops of each parameter; feature loops of
        one extent count as one."""
        nest = self.nest
        own = {*nest.batch_loops, nest.row_loop, nest.column_loop}
        found: dict[object, Value] = {}
        first: dict[Value, Value] = {}
        for param, operand in zip(self.named.block.params, self.named.op.operands, strict=True):
            loops = [
                (loop, None) if loop in own else (None, nest.extents[loop])
                for loop in nest.mappings[param]
            ]
            first[param] = found.setdefault((operand, *loops), param)
        return first

    def stored_matrix(self, value: Value) -> Value:
        """Return the parameter that a matrix is, or that it is converted from."""
        return self.first_params[self.nest.conversions.get(value, value)]

    @cached_property
    def exponential_sums(self) -> Set[Value]:
        """Sums of exponentials relative to the largest score, broadcast or not.

        As one of the exponentials is 1, such a sum is NaN or at least 1.
        """
        given = {param for n, param in enumerate(self.named.block.params) if n in self.sums}
        return find_exponential_sums(self.ops) | {
            op.result for op in self.ops if source_value(self.makers, op.result) in given
        }

    def permutation_lines(self) -> list[str]:
        """Return the lines that copy matrices whose features are not innermost."""
        lines = []
        for param in dict.fromkeys(self.first_params.values()):
            loops = self.nest.mappings[param]
            dims = dict(zip(loops, non_unit_dims(param.type), strict=True))
            stored = [dims[loop] for loop in _stored_loops(self.nest, param)]
            if stored != sorted(stored):
                last = stored[-1]
                order = [dim for dim in range(param.type.rank) if dim != last] + [last]
                name = self.named.names[param]
                text = ", ".join(map(str, order))
                lines.append(f"{name} = {name}.permute({text}).contiguous()")
        return lines

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


def _stored_loops(nest: ProductNest, value: Value) -> tuple[int, ...]:
    """Return the loops of a value in the order of its dimensions in memory.

    The features of a matrix are innermost there: the launch copies other matrices. With Triton 3.6
    on sm_90, a kernel of f32 matrices in another order ended with an illegal memory access.
    """
    loops = nest.mappings[value]
    if value not in nest.block.params:
        return loops
    outside = {nest.row_loop, nest.column_loop, *nest.batch_loops}
    return tuple(sorted(loops, key=lambda loop: loop not in outside))


def make_products_group(op: Op, name: str, sums: Set[int] = frozenset()) -> ProductsGroup:
    """Return the group of an operation `fused_products`."""
    (block,) = op.blocks
    nest = build_product_nest(block)
    live = live_values(block)
    ops = tuple(op for op in block.ops if op.results[0] in live)
    return ProductsGroup(name_group(op, name, _layout(nest, ops)), nest, ops, sums)


def _layout(nest: ProductNest, ops: tuple[Op, ...]) -> GroupLayout:
    """Return the loops as axes, and the strides of values that kernels may load or store."""
    lies = {
        value: nest.mappings[value]
        for value in (*nest.block.params, *nest.block.returns, *(op.result for op in ops))
    }
    strides: dict[Value, Mapping[int, int]] = {}
    for value in lies:
        step = 1
        own = dict[int, int]()
        for loop in reversed(_stored_loops(nest, value)):
            own[loop] = step
            step *= nest.extents[loop]
        strides[value] = own
    for op in ops:
        if op.spec is iota:
            along = dict(zip(non_unit_dims(op.result.type), lies[op.result], strict=True))
            axis = along.get(op.attrs["dim"])
            strides[op.result] = {} if axis is None else {axis: 1}
    return GroupLayout(nest.extents, frozenset([nest.column_loop]), lies, strides)
