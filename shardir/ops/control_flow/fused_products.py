"""Fused products: matrix products with the computation between them, as in attention.

`fused_products` applies its block. The block computes *scores*: values of one row loop, one column
loop, and any batch loops. It may contain

- *score products*: `dot` of a matrix of rows and one of columns, which sums over one more loop;
- what `fused` contains, applied to scores, and to values that lack some of their loops;
- the reductions `sum`, `max` and `min` over the column loop, of f64 scores if the products are of
  f64, and otherwise of f32 scores;
- *column sums* and *row sums*: `dot` of scores and a matrix, which sums over the column loop, or
  over the row loop and any batch loops;
- `convert` to f32 of a parameter of 16-bit floats that is a matrix of these products.

It returns column sums, row sums, and results of reductions. A kernel thus computes it for a block
of rows at a time, and its memory is linear in the extents of both loops. In attention, rows are
queries and columns are keys: the result is a column sum, and so is the gradient of queries; the
gradients of keys and of values are row sums.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from shardir.ir.dtypes import NARROW_FLOATS
from shardir.ir.module import Block, Op, Value
from shardir.ir.operation import define_op
from shardir.ir.types import FLOATS, TensorType
from shardir.ops.contraction.dot import dot
from shardir.ops.control_flow.block_types import Types, types_of
from shardir.ops.control_flow.derivative_regions import block_edges
from shardir.ops.control_flow.loop_unification import (
    LoopMapping,
    LoopUnification,
    check_nest_block,
    live_values,
    non_unit_dims,
)
from shardir.ops.elementwise.elementwise import convert
from shardir.ops.reductions.reduce import max_, min_, sum_

ROW_REDUCTIONS = (sum_, max_, min_)
"""The reductions of scores."""


@dataclass(frozen=True)
class ProductNest:
    """The loops of a block: the extent of each, the row and the column loop, and the loops of each
    value."""

    block: Block
    extents: tuple[int, ...]
    row_loop: int
    column_loop: int
    mappings: dict[Value, LoopMapping]
    score_products: tuple[Op, ...]
    sums: tuple[Op, ...]
    """The column sums and the row sums."""
    conversions: dict[Value, Value]
    """The parameter that each converted matrix is computed from."""

    @cached_property
    def batch_loops(self) -> tuple[int, ...]:
        """The loops of scores other than the row and the column loop."""
        loops = self.mappings[self.score_products[0].result]
        return tuple(sorted(set(loops) - {self.row_loop, self.column_loop}))

    @property
    def computed_dtype(self) -> str:
        """The type in which products are summed: f64, or f32 for other floats."""
        return "f64" if self.score_products[0].result.type.dtype == "f64" else "f32"

    def is_column_sum(self, op: Op) -> bool:
        """Return whether a sum reduces the column loop; other sums reduce the row loop."""
        return self.row_loop in self.mappings[op.result]

    def scores_and_matrix(self, op: Op) -> tuple[Value, Value]:
        """Return the scores and the matrix that a sum multiplies."""
        x, y = op.operands
        return (x, y) if self.is_score(x) else (y, x)

    def row_and_column_matrix(self, op: Op) -> tuple[Value, Value]:
        """Return the matrix of rows and the matrix of columns that a score product multiplies."""
        x, y = op.operands
        return (x, y) if self.row_loop in self.mappings[x] else (y, x)

    def is_score(self, value: Value) -> bool:
        """Return whether a value has the row and the column loop."""
        return {self.row_loop, self.column_loop} <= set(self.mappings[value])

    def feature_loop(self, value: Value) -> int:
        """Return the loop of a matrix that scores lack."""
        own = {*self.batch_loops, self.row_loop, self.column_loop}
        (loop,) = (loop for loop in self.mappings[value] if loop not in own)
        return loop


def build_product_nest(block: Block) -> ProductNest:
    """Return the loops of a block; raise `TypeError` if it is not a nest of fused products."""
    joined = LoopUnification(block.params, (dot, *ROW_REDUCTIONS))
    for op in block.ops:
        joined.check_operands(op)
        if op.spec is dot:
            _map_product(joined, op)
        elif op.spec in ROW_REDUCTIONS:
            joined.map_reduction(op)
        else:
            joined.map_result(op)
    live = live_values(block)
    ops = [op for op in block.ops if any(result in live for result in op.results)]
    products = [op for op in ops if op.spec is dot]
    made = {op.result for op in products}
    derived = _derived_from(ops, made)
    sums = tuple(op for op in products if any(value in derived for value in op.operands))
    score_products = tuple(op for op in products if op not in sums)
    if not score_products:
        raise TypeError("its block computes no scores: no dot has operands from outside")
    mappings, extents = _number_loops(joined)
    column, row = _find_loops(ops, score_products, sums, mappings, extents)
    scores = set(mappings[score_products[0].result])
    conversions = _find_conversions(block, ops, scores, mappings)
    nest = ProductNest(block, extents, row, column, mappings, score_products, sums, conversions)
    _check_products(nest)
    _check_values(nest, ops)
    return nest


def _find_conversions(
    block: Block, ops: Sequence[Op], scores: set[int], mappings: dict[Value, LoopMapping]
) -> dict[Value, Value]:
    """Return the matrices of 16-bit floats whose conversions to f32 only products use, by the
    results of the conversions."""
    others = {value for op in ops if op.spec is not dot for value in op.operands}
    others.update(block.returns)
    return {
        op.result: op.operands[0]
        for op in ops
        if op.spec is convert and op.operands[0] in block.params and op.result not in others
        if op.operands[0].type.dtype in NARROW_FLOATS and op.result.type.dtype == "f32"
        if not set(mappings[op.result]) <= scores
    }


def _map_product(joined: LoopUnification, op: Op) -> None:
    """Unify the loops of the dimensions of a product that have equal letters."""
    terms, _, output = op.attrs["dims"].partition("->")
    loops: dict[str, int] = {}
    for value, term in zip(op.operands, terms.split(","), strict=True):
        letters = [term[dim] for dim in non_unit_dims(value.type)]
        for letter, loop in zip(letters, joined.mappings[value], strict=True):
            joined.unify((loop,), (loops.setdefault(letter, loop),))
    dims = non_unit_dims(op.result.type)
    joined.mappings[op.result] = tuple(loops[output[dim]] for dim in dims)


def _derived_from(ops: Sequence[Op], values: set[Value]) -> set[Value]:
    """Return these values and those that depend on them."""
    derived = set(values)
    for op in ops:
        if any(value in derived for value in op.operands):
            derived.update(op.results)
    return derived


def _number_loops(joined: LoopUnification) -> tuple[dict[Value, LoopMapping], tuple[int, ...]]:
    numbers: dict[int, int] = {}
    extents: list[int] = []
    mappings = {}
    for value, axes in joined.mappings.items():
        loops = []
        for dim, axis in zip(non_unit_dims(value.type), axes, strict=True):
            root = joined.root(axis)
            if root not in numbers:
                numbers[root] = len(extents)
                extents.append(value.type.shape[dim])
            loops.append(numbers[root])
        if len(set(loops)) != len(loops):
            raise TypeError(
                f"%{value.name}: {value.type} maps two dimensions to one loop; pass an operand "
                "once for each use"
            )
        mappings[value] = tuple(loops)
    return mappings, tuple(extents)


def _find_loops(
    ops: Sequence[Op],
    score_products: Sequence[Op],
    sums: Sequence[Op],
    mappings: dict[Value, LoopMapping],
    extents: tuple[int, ...],
) -> tuple[int, int]:
    """Return the column loop, which reductions or else the first sum remove, and the row loop: the
    longest loop that only one operand of the score products has."""
    removed = [
        frozenset(mappings[op.operands[0]]) - frozenset(mappings[op.result])
        for op in ops
        if op.spec in ROW_REDUCTIONS
    ]
    for op in sums:
        scores = set(mappings[score_products[0].result])
        removed.append(frozenset(scores - set(mappings[op.result])))
    if not removed or len(removed[0]) != 1:
        raise TypeError("neither a reduction nor a sum of its block removes one loop of scores")
    (column,) = removed[0]
    candidates = set(mappings[score_products[0].result]) - {column}
    for op in score_products:
        x, y = (set(mappings[value]) for value in op.operands)
        candidates &= x ^ y
        candidates -= {loop for loop in x | y if loop not in mappings[op.result]}
        candidates -= (x | y) - (x if column not in x else y)
    if not candidates:
        raise TypeError("no loop of its scores belongs to only one operand of each score product")
    return column, max(sorted(candidates), key=lambda loop: extents[loop])


def _check_products(nest: ProductNest) -> None:
    scores = set(nest.mappings[nest.score_products[0].result])
    row, column = nest.row_loop, nest.column_loop
    dtypes = {value.type.dtype for op in (*nest.score_products, *nest.sums) for value in op.tensors}
    is_wide = "f64" in dtypes
    if not dtypes <= set(FLOATS) or (is_wide and dtypes != {"f64"}):
        raise TypeError(f"its products have the types {', '.join(sorted(dtypes))}")
    for op in nest.score_products:
        x, y = (set(nest.mappings[value]) for value in op.operands)
        contracted = (x | y) - scores
        is_product = len(contracted) == 1 and contracted <= x & y and {row, column} <= x ^ y
        if not is_product or set(nest.mappings[op.result]) != scores or {row, column} in (x, y):
            raise TypeError(f"%{op.result.name} = dot is not a product of rows and columns")
    for op in nest.sums:
        multiplied, other = nest.scores_and_matrix(op)
        matrix, result = set(nest.mappings[other]), set(nest.mappings[op.result])
        features = matrix - scores
        removed = (scores | matrix) - result
        is_column_sum = removed == {column} and row not in matrix and column in matrix
        is_row_sum = column in result and row in removed and row in matrix and column not in matrix
        is_sum = len(features) == 1 and features <= result and (is_column_sum or is_row_sum)
        if set(nest.mappings[multiplied]) != scores or not is_sum:
            raise TypeError(f"%{op.result.name} = dot is not a sum of scores over rows or columns")
    kept = {
        frozenset(nest.mappings[op.result]).intersection(nest.batch_loops)
        for op in nest.sums
        if not nest.is_column_sum(op)
    }
    if len(kept) > 1:
        raise TypeError("its row sums have different batch loops")


def _check_values(nest: ProductNest, ops: Sequence[Op]) -> None:
    scores = set(nest.mappings[nest.score_products[0].result])
    sums = {op.result for op in nest.sums}
    computed = nest.computed_dtype
    for op in ops:
        if any(value in sums for value in op.operands):
            raise TypeError(f"%{op.result.name} = {op.name} uses a sum; compute it outside")
        if op.spec is dot or op.result in nest.conversions:
            continue
        for value in op.tensors:
            if not set(nest.mappings[value]) <= scores:
                raise TypeError(f"%{value.name}: {value.type} has loops that scores lack")
        if op.spec in ROW_REDUCTIONS:
            x = op.operands[0]
            removed = set(nest.mappings[x]) - set(nest.mappings[op.result])
            is_supported = x.type.dtype == computed
            if not is_supported or removed != {nest.column_loop} or set(nest.mappings[x]) != scores:
                raise TypeError(
                    f"%{op.result.name} = {op.name} is not a sum, max or min of scores in "
                    f"{computed} over columns"
                )
    for value in nest.block.returns:
        if value not in sums and set(nest.mappings[value]) != scores - {nest.column_loop}:
            raise TypeError(
                f"it yields %{value.name}: {value.type}, which is neither a sum nor a value of "
                "each row"
            )


def _fused_products_type(*operands: TensorType, result: object, blocks: tuple[Block, ...]) -> Types:
    block = check_nest_block(operands, blocks)
    build_product_nest(block)
    return types_of(block.returns)


fused_products = define_op(
    "fused_products", type=_fused_products_type, edges=block_edges, blocks=1, is_loop_nest=True
)
"""The block, applied to the operands."""
