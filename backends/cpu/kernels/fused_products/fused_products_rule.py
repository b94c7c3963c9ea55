"""Lower fused products to phases: copies of matrices of columns, the row blocks, the row sums.

A matrix of columns is used by each row block, so that a dense copy of it, in the type of the sums,
is made first if its rows have gaps or another type. Tasks accumulate row sums in memory of their
own; the last phases add those of different tasks. Neither depends on the number of workers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from math import prod

from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import BufferView, Kernel, LoweringContext, Phase, Rule
from shardir.backends.cpu.kernels.elementwise.loop_body import APPLY
from shardir.backends.cpu.kernels.elementwise.phase_record import make_named_kernel
from shardir.backends.cpu.kernels.elementwise.rules import has_instructions, lower_loop_nest
from shardir.backends.cpu.kernels.fused_products.amx_product import BLOCK_EXTENT
from shardir.backends.cpu.kernels.fused_products.bf16_pairs import (
    PairedProducts,
    find_paired_products,
)
from shardir.backends.cpu.kernels.fused_products.matrix_copies import (
    MatrixCopies,
    convert_phases,
    type_of,
)
from shardir.backends.cpu.kernels.fused_products.row_block_kernel import (
    COLUMNS_PER_CHUNK,
    emit_row_block_kernel,
)
from shardir.backends.cpu.kernels.fused_products.row_block_record import (
    RowBlockShape,
    word_names,
)
from shardir.backends.cpu.kernels.fused_products.score_passes import (
    PassPlan,
    ScoreSteps,
    plan_score_passes,
    score_steps,
)
from shardir.backends.cpu.kernels.fused_products.tile_product import tile_shape
from shardir.backends.cpu.kernels.fused_products.visible_columns import (
    MAX_LOOP_EXTENT,
    find_visible_columns,
)
from shardir.backends.cpu.kernels.math import registers
from shardir.ir.module import Block, Op, Value
from shardir.ir.types import TensorType
from shardir.ops.control_flow.fused import fused
from shardir.ops.control_flow.fused_products import ProductNest, build_product_nest
from shardir.ops.control_flow.loop_unification import non_unit_dims
from shardir.ops.elementwise.elementwise import convert
from shardir.ops.reductions.reduce import sum_

MAX_BLOCK_ROWS = 64
"""Maximum rows of a block; more rows gain nothing, and more scores would be excluded late."""
MIN_BLOCK_VECTORS = 2
"""Minimum vectors of rows of a block with row sums, whose results are loaded for each block."""
MIN_TASKS, MAX_PARTS = 16, 8
"""The row blocks of one index of the batch loops are divided into parts, of which each has row sums
of its own, if there are fewer tasks than the first number; at most into the second number."""
_FLOPS_PER_NS, _STEP_NS = 60.0, 0.05
"""Estimated operations of products per nanosecond, and nanoseconds of an elementwise step for each
score."""
_ALIGNMENT_BYTES = 64


def fused_products_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> Sequence[Phase] | None:
    """Return the phases of fused products; `None` if a step has no vector instructions, or for
    conversions inside of the operation: matrices are packed once, before it."""
    nest = build_product_nest(op.blocks[0])
    if 0 in nest.extents or nest.conversions:
        return None
    steps = score_steps(nest)
    plan = plan_score_passes(steps)
    if not _is_supported(nest, steps, plan):
        return None
    return _ProductsLowering(nest, steps, plan, operands, results, context, op.why).phases()


def _is_supported(nest: ProductNest, steps: ScoreSteps, plan: PassPlan) -> bool:
    is_double = nest.computed_dtype == "f64"
    stored = (steps.body.steps[step].dtype for each in plan.passes for step, _ in each.stores)
    if any((dtype == "f64") != is_double for dtype in stored):
        return False
    return all(
        has_instructions(
            step.op, step.attrs, tuple(steps.body.steps[i].dtype for i in step.operands), step.dtype
        )
        for step in steps.body.steps
        if step.kind == APPLY
    )


@dataclass
class _ProductsLowering:
    nest: ProductNest
    steps: ScoreSteps
    plan: PassPlan
    operands: Sequence[BufferView]
    results: Sequence[BufferView]
    context: LoweringContext
    label: str
    words: dict[str, int] = field(default_factory=dict)
    after: list[Phase] = field(default_factory=list)

    def phases(self) -> list[Phase]:
        nest, steps = self.nest, self.steps
        rows, columns = nest.extents[nest.row_loop], nest.extents[nest.column_loop]
        row_sums = [op for op in nest.sums if not nest.is_column_sum(op)]
        extents = [nest.extents[loop] for loop in nest.batch_loops]
        is_short = max(rows, columns, *extents) <= MAX_LOOP_EXTENT
        parallel = tuple(
            number
            for number, loop in enumerate(nest.batch_loops)
            if all(loop in nest.mappings[op.result] for op in row_sums)
        )
        outer = prod(extents[number] for number in parallel)
        tile_rows, lanes = tile_shape(nest.computed_dtype, self.context.machine)
        block = choose_block_rows(
            rows,
            self.plan.slots * columns * self.item,
            lanes,
            self.context.machine,
            bool(row_sums),
        )
        blocks = -(-rows // block)
        parts = blocks
        if row_sums:
            parts = min(blocks, MAX_PARTS, -(-MIN_TASKS // outer))
        shape = RowBlockShape(
            steps,
            self.plan,
            find_visible_columns(steps, self.plan) if is_short else None,
            tuple(nest.is_column_sum(op) for op in nest.sums),
            self.row_matrix_dtypes(),
            tuple(op.result.type.dtype for op in nest.sums),
            tuple(self.operands[i].dtype for i in steps.operands),
            len(nest.batch_loops),
            parallel,
            nest.computed_dtype,
            tile_rows,
            lanes,
            *self.paired_products,
        )
        self.words.update(rows=rows, columns=columns, block=block, blocks=blocks, parts=parts)
        self.words.update(padded_columns=_round_up(columns, shape.column_multiple))
        self.words.update({f"extent{i}": extent for i, extent in enumerate(extents)})
        self.add_matrices()
        self.add_sums(lanes, [extents[number] for number in parallel], parts)
        self.add_values()
        self.add_scratch(lanes)
        record = tuple(self.words[name] for name in word_names(shape))
        kernel, cost = row_block_kernel(shape, self.context.machine), self.cost(shape)
        workers = self.context.workers
        middle = Phase(kernel, record, outer * parts, cost, self.label, max_workers=workers)
        return [*self.copies.phases, middle, *self.after]

    @cached_property
    def copies(self) -> MatrixCopies:
        return MatrixCopies(self.context)

    @cached_property
    def paired_products(self) -> PairedProducts:
        return find_paired_products(
            self.nest, self.steps, self.plan, self.view, self.context.machine
        )

    @property
    def item(self) -> int:
        return registers.itemsize(self.nest.computed_dtype)

    def cost(self, shape: RowBlockShape) -> float:
        nest = self.nest
        scores = prod(nest.extents[loop] for loop in nest.mappings[nest.score_products[0].result])
        if shape.visible is not None:
            scores //= 2
        features = sum(self.words[name] for name in word_names(shape) if name.endswith(".features"))
        steps = sum(len(each.steps) for each in self.plan.passes)
        return scores * (features / _FLOPS_PER_NS + steps * _STEP_NS)

    def view(self, value: Value) -> BufferView:
        """Return the view of a parameter of the block."""
        return self.operands[self.nest.block.params.index(value)]

    def row_matrix_dtypes(self) -> tuple[str, ...]:
        nest = self.nest
        values = [nest.row_and_column_matrix(op)[0] for op in nest.score_products]
        values += [nest.scores_and_matrix(op)[1] for op in nest.sums]
        return tuple(value.type.dtype for value in values)

    def add_array(self, name: str, view: BufferView, value: Value, feature: int | None) -> None:
        """Add the words of an array: its address, and its strides along each loop."""
        nest = self.nest
        dims = non_unit_dims(value.type)
        strides = {
            loop: view.strides[dim] for dim, loop in zip(dims, nest.mappings[value], strict=True)
        }
        self.words[f"{name}.slot"] = view.slot
        self.words[f"{name}.offset"] = view.offset
        self.words[f"{name}.features"] = 1 if feature is None else nest.extents[feature]
        self.words[f"{name}.feature"] = 0 if feature is None else strides[feature]
        self.words[f"{name}.row"] = strides.get(nest.row_loop, 0)
        self.words[f"{name}.column"] = strides.get(nest.column_loop, 0)
        for number, loop in enumerate(nest.batch_loops):
            self.words[f"{name}.batch{number}"] = strides.get(loop, 0)

    def add_matrices(self) -> None:
        nest = self.nest
        for number, op in enumerate(nest.score_products):
            rows, columns = nest.row_and_column_matrix(op)
            feature, is_paired = nest.feature_loop(rows), self.paired_products.products[number]
            dtype = "bf16" if is_paired else nest.computed_dtype
            tile = BLOCK_EXTENT if is_paired and self.paired_products.has_tiles else 1
            row_dims, column_dims = (self.dims_of(value) for value in (rows, columns))
            left, right = self.view(rows), self.view(columns)
            if tile > 1:
                left = self.copies.with_contiguous_rows(left, row_dims, tile)
            right = self.copies.dense(right, column_dims, dtype, (tile, tile))
            self.add_array(f"rows{number}", left, rows, feature)
            self.add_array(f"columns{number}", right, columns, feature)
            for name in (f"rows{number}", f"columns{number}") if is_paired else ():
                self.words[f"{name}.feature"] *= 2
                self.words[f"{name}.features"] = right.shape[column_dims[1]] // 2
        for number, op in enumerate(nest.sums):
            matrix = nest.scores_and_matrix(op)[1]
            view = self.sum_matrix(op, self.paired_products.sums[number])
            self.add_array(f"matrix{number}", view, matrix, nest.feature_loop(matrix))

    def sum_matrix(self, op: Op, is_paired: bool) -> BufferView:
        """Return the matrix of a sum in the order in which the kernel reads it."""
        nest, copies = self.nest, self.copies
        value = nest.scores_and_matrix(op)[1]
        view, dims = self.view(value), self.dims_of(value)
        tiles = BLOCK_EXTENT, BLOCK_EXTENT
        if not nest.is_column_sum(op):
            return copies.in_groups(view, dims, 2, tiles) if is_paired else view
        if not is_paired:
            return copies.dense(view, dims, nest.computed_dtype)
        if self.paired_products.has_tiles:
            return copies.in_groups(view, dims, BLOCK_EXTENT, tiles)
        return copies.in_groups(view, dims, 2, (2, 1))

    def dims_of(self, value: Value) -> tuple[int, int]:
        """Return the dimensions of the rows or columns, and of the features of a matrix."""
        nest = self.nest
        dims = dict(zip(nest.mappings[value], non_unit_dims(value.type), strict=True))
        outer = nest.row_loop if nest.row_loop in dims else nest.column_loop
        return dims[outer], dims[nest.feature_loop(value)]

    def add_sums(self, lanes: int, parallel: Sequence[int], parts: int) -> None:
        nest = self.nest
        returned = dict(zip(nest.block.returns, self.results, strict=True))
        for number, op in enumerate(nest.sums):
            view = returned[op.result]
            feature = nest.feature_loop(nest.scores_and_matrix(op)[1])
            if nest.is_column_sum(op):
                self.add_array(f"sum{number}", view, op.result, feature)
                continue
            row = _round_up(nest.extents[feature], lanes) * self.item
            task = row * self.words["padded_columns"]
            slot = self.context.temporary(task * parts * prod(parallel))
            self.add_array(f"sum{number}", view._replace(slot=slot, offset=0), op.result, feature)
            self.words[f"sum{number}.column"] = row
            kept = [loop for loop in nest.batch_loops if loop in nest.mappings[op.result]]
            strides = {feature: self.item, nest.column_loop: row}
            step = task * parts
            for loop in reversed(kept):
                strides[loop] = step
                step *= nest.extents[loop]
            dims = dict(zip(non_unit_dims(op.result.type), nest.mappings[op.result], strict=True))
            inner = tuple(
                strides[dims[dim]] if dim in dims else 0 for dim in range(len(view.shape))
            )
            source = BufferView(slot, 0, (parts, *view.shape), (task, *inner), nest.computed_dtype)
            self.after += sum_phases(source, view, self.context)

    def add_values(self) -> None:
        nest, params = self.nest, self.nest.block.params
        for number, i in enumerate(self.steps.operands):
            self.add_array(f"operand{number}", self.operands[i], params[i], None)
        sums = {op.result for op in nest.sums}
        others = [
            (value, view)
            for value, view in zip(nest.block.returns, self.results, strict=True)
            if value not in sums
        ]
        for number, (value, view) in enumerate(others):
            self.add_array(f"result{number}", view, value, None)

    def add_scratch(self, lanes: int) -> None:
        """Assign the scratch memory of a worker."""
        w, item = self.words, self.item
        block = w["block"]
        sizes = {
            f"rows{i}": w[f"rows{i}.features"] * block * item for i in range(self.steps.products)
        }
        for number, op in enumerate(self.nest.sums):
            name = "sum" if self.nest.is_column_sum(op) else "matrix"
            features = _round_up(w[f"{name}{number}.features"], lanes)
            sizes[f"{name}{number}"] = features * block * item
        for number, i in enumerate(self.steps.operands):
            sizes[f"operand{number}"] = COLUMNS_PER_CHUNK * block * self.operands[i].itemsize
        for step in self.steps.body.reductions:
            sizes[f"reduced{step}"] = block * registers.itemsize(self.steps.body.steps[step].dtype)
        for number, step in enumerate(self.steps.returns):
            sizes[f"result{number}"] = block * registers.itemsize(self.steps.body.steps[step].dtype)
        for slot in range(self.plan.slots):
            sizes[f"slot{slot}"] = w["padded_columns"] * block * item
        at = 0
        for name, size in sizes.items():
            w[f"{name}.at"] = at
            at += _round_up(size, _ALIGNMENT_BYTES)
        w["scratch_bytes"] = at
        w["scratch"] = self.context.temporary(at * self.context.workers)


@cache
def row_block_kernel(shape: RowBlockShape, machine: HostDescription) -> Kernel:
    """Return the kernel of a shape; equal shapes share one kernel."""
    return make_named_kernel("fused_products", shape, machine, emit_row_block_kernel)


def choose_block_rows(
    rows: int, bytes_per_row: int, lanes: int, machine: HostDescription, has_row_sums: bool
) -> int:
    """Return the rows of a block: as many as have their scores in the second-level cache."""
    least = MIN_BLOCK_VECTORS * lanes if has_row_sums else lanes
    fitting = machine.l2_bytes // bytes_per_row // lanes * lanes
    most = max(MAX_BLOCK_ROWS, least)
    return min(_round_up(rows, lanes), most, max(fitting, least))


def sum_phases(source: BufferView, target: BufferView, context: LoweringContext) -> Sequence[Phase]:
    """Return the phases that sum a view over its first dimension and convert it."""
    if source.shape[0] == 1:
        inner = source._replace(shape=source.shape[1:], strides=source.strides[1:])
        return convert_phases(inner, target, context)
    x, y = Value(type_of(source), "x"), Value(type_of(target), "y")
    total = Value(TensorType(target.shape, source.dtype), "total")
    ops = [Op(sum_, (x,), (total,), {"dims": (0,)})]
    if target.dtype != source.dtype:
        ops.append(Op(convert, (total,), (Value(y.type, "z"),), {}))
    block = Block((x,), tuple(ops), ops[-1].results)
    phases = lower_loop_nest(Op(fused, (x,), (y,), {}, (block,)), [source], [target], context)
    assert phases is not None
    return phases


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


RULES: Mapping[str, Rule] = {"fused_products": fused_products_rule}
