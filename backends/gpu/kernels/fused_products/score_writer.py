"""Lines of a kernel of fused products: tiles of matrices, scores, their reductions and sums.

A tile of scores has an outer side, of which a program computes one block, and an inner side, along
which it loops: rows and columns, or columns and rows.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from shardir.backends.gpu.dtypes import TRITON_TYPES
from shardir.backends.gpu.kernels.arithmetic import round_text
from shardir.backends.gpu.kernels.fused_products.products_group import ProductsGroup
from shardir.backends.gpu.kernels.fused_products.score_passes import Exponential
from shardir.backends.gpu.kernels.group import INDEX_NAMES
from shardir.backends.gpu.kernels.kernel_writer import KernelWriter
from shardir.backends.gpu.kernels.terms import KernelTerm, parenthesize
from shardir.backends.gpu.kernels.tile_reduction import accumulate, identity_element, reduce_tile
from shardir.backends.gpu.kernels.tile_sides import IndexVariables, TileSide
from shardir.ir.dtypes import NARROW_FLOATS
from shardir.ir.module import Op, Value
from shardir.ops.contraction.dot import dot
from shardir.ops.elementwise.elementwise import div


@dataclass(eq=False, kw_only=True)
class ScoreWriter(KernelWriter):
    """Writes the body of one kernel of fused products.

    `terms` has matrices as well as scores. `sides` are those of batch loops, then the outer and the
    inner side.
    """

    group: ProductsGroup
    outer: TileSide
    inner: TileSide
    precision: str
    features: dict[int, tuple[str, str]] = field(default_factory=dict)
    """The index variable and the constant of the length of feature loops, by their extent."""
    constants: dict[str, int] = field(default_factory=dict)
    next_maxima: dict[Op, str] = field(default_factory=dict)
    """The variable of each maximum that the current tile has updated."""

    def compute(self, op: Op) -> None:
        if op.spec is dot:
            self.multiply(op)
        elif op.spec is div and op.operands[1] in self.group.exponential_sums:
            self.multiply_by_inverse(op)
        elif op.result in self.group.nest.conversions:
            x = self.term(op.operands[0])
            self.define(op.result, f"{x.text}.to(tl.float32)", x.spans)
        else:
            super().compute(op)

    def multiply_by_inverse(self, op: Op) -> None:
        """Write a division by a sum that is at least 1 as one division for each row."""
        if op.result.type.dtype != "f32":
            super().compute(op)
            return
        x, y = (self.term(operand) for operand in op.operands)
        text = f"{parenthesize(x.text)} * tl.div_rn(1.0, {y.text})"
        self.define(op.result, text, x.spans | y.spans)

    def load(self, value: Value) -> None:
        """Write the load of a parameter: of a matrix, or of values that scores depend on.

        Parameters of one operand with the same loops are loaded once.
        """
        first = self.group.first_params.get(value, value)
        if first != value:
            self.terms[value] = self.term(first)
            return
        if not self.is_matrix(value):
            super().load(value)
            return
        self.loaded.add(value)
        side = self.outer if self.outer.axes[0] in self.layout.strides[value] else self.inner
        text = f"{self.names[value]}_ptr{self.matrix_offset(value, side)}"
        mask = self.matrix_mask(value, side)
        rest = f", {mask}, 0.0" if mask else ""
        self.append_line(f"{self.names[value]} = tl.load({text}{rest})")
        self.terms[value] = KernelTerm(self.names[value], value.type.dtype, spans=side.spans)

    def write_iota(self, op: Op) -> None:
        """Let the index along a side be the value of an `iota` of its type."""
        offset, spans = self.offset(op.result)
        if offset and op.result.type.dtype == self.index_dtype:
            text = offset.removeprefix(" + ")
            self.terms[op.result] = KernelTerm(text, self.index_dtype, spans=spans)
        else:
            super().write_iota(op)

    def is_matrix(self, value: Value) -> bool:
        """Return whether a value has a feature loop."""
        nest = self.group.nest
        own = {nest.row_loop, nest.column_loop, *nest.batch_loops}
        return not own.issuperset(nest.mappings[value])

    def feature_names(self, value: Value) -> tuple[str, str]:
        """Return the index variable of the features of a matrix or sum, and its length's name."""
        nest = self.group.nest
        extent = nest.extents[nest.feature_loop(value)]
        if extent not in self.features:
            number = len(self.features) + 1
            suffix = f"_{number}" if number > 1 else ""
            name, length = self.group.named.own_name(f"feature{suffix}"), f"FEATURES{suffix}"
            self.features[extent] = name, length
            self.constants[length] = self.group.padded_features(value)
        return self.features[extent]

    def matrix_offset(self, value: Value, side: TileSide) -> str:
        """Return the offset of the elements of a matrix whose rows lie along a side."""
        nest, strides = self.group.nest, self.layout.strides[value]
        feature = nest.feature_loop(value)
        terms = [(each.index, strides[each.axes[0]]) for each in self.sides if each.length == 1
                 if each.axes[0] in strides]  # fmt: skip
        terms.append((self.row_index(side), strides[side.axes[0]]))
        terms.append((f"{self.feature_names(value)[0]}[None, :]", strides[feature]))
        return "".join(f" + {text}" + (f" * {n}" if n != 1 else "") for text, n in terms)

    def row_index(self, side: TileSide) -> str:
        """Return the index along a side as the first dimension of a tile of a matrix."""
        return f"{side.index.partition('[')[0]}[:, None]"

    def matrix_mask(self, value: Value, side: TileSide) -> str:
        """Return the bounds mask of a matrix; empty if all elements are in bounds."""
        nest = self.group.nest
        masks = []
        if side.mask:
            is_first = side.index == self.row_index(side)
            masks.append(side.mask if is_first else f"({self.row_index(side)} < {side.size})")
        extent = nest.extents[nest.feature_loop(value)]
        if extent != self.group.padded_features(value):
            masks.append(f"({self.feature_names(value)[0]}[None, :] < {extent})")
        return " & ".join(masks)

    def multiply(self, op: Op) -> None:
        """Write a product of a matrix of the outer side and one of the inner side."""
        x, y = self.group.nest.row_and_column_matrix(op)
        if self.outer.axes[0] not in self.layout.strides[x]:
            x, y = y, x
        left, right = self.operand_texts(self.term(x), self.term(y))
        text = f"tl.dot({left}, tl.trans({right}){self.dot_options(x, y)})"
        spans = self.outer.spans | self.inner.spans
        if op.result.type.dtype in NARROW_FLOATS:
            text = round_text(text, op.result.type.dtype)
        self.define(op.result, text, spans)

    def operand_texts(self, x: KernelTerm, y: KernelTerm) -> tuple[str, str]:
        """Return matrices as operands of one product, which have one type."""
        if x.dtype == y.dtype:
            return x.text, y.text
        return f"{x.text}.to(tl.float32)", f"{y.text}.to(tl.float32)"

    def dot_options(self, *operands: Value) -> str:
        """Return the last arguments of the `tl.dot` of values of these types.

        Six products of bf16 are as exact as one of f32, and faster: matrix units compute them.
        """
        dtypes = {value.type.dtype for value in operands}
        is_narrow = len(dtypes) == 1 and dtypes <= set(NARROW_FLOATS)
        precision = "bf16x6" if self.precision == "ieee" else self.precision
        return "" if is_narrow else f', input_precision="{precision}"'

    def add_sum(self, op: Op, exponential: Exponential | None = None) -> None:
        """Write the line that adds the tile's part to a column sum or a row sum."""
        scores, matrix = self.group.nest.scores_and_matrix(op)
        division = None if exponential is None else self.division(exponential)
        if division is not None:
            self.skip_division(division)
        source = self.group.nest.conversions.get(matrix, matrix)
        is_split = source.type.dtype == "bf16" and scores.type.dtype == "f32"
        if is_split:
            matrix = source
        self.emit(self.collect_needed([scores, matrix], through=False))
        term, other = self.mask_scores(self.term(scores)), self.term(matrix)
        if is_split:
            name = self.names[op.result]
            added = self.rescale_sum(name, exponential)
            self.append_line(f"{name} = multiply_split({term.text}, {other.text}, {added})")
            return
        if other.dtype in NARROW_FLOATS and term.dtype == other.dtype:
            term = replace(term, text=f"{parenthesize(term.text)}.to({TRITON_TYPES[other.dtype]})")
        left, right = self.operand_texts(term, other)
        name = self.names[op.result]
        added = self.rescale_sum(name, exponential)
        if added != name:
            self.append_line(f"{name} = {added}")
        options = self.dot_options(scores, matrix)
        self.append_line(f"{name} = tl.dot({left}, {right}, {name}{options})")

    def mask_scores(self, term: KernelTerm) -> KernelTerm:
        """Return scores that are zero out of the bounds of the inner side."""
        whole = self.broadcast_to_tile(term)
        if not self.inner.mask:
            return whole
        return replace(whole, text=f"tl.where({self.inner.mask}, {whole.text}, 0.0)")

    def division(self, exponential: Exponential) -> Op | None:
        """Return the division of exponentials by their sum; other scores may be divided by it."""
        steps = (self.makers[value] for value in exponential.steps)
        return next((op for op in steps if exponential.divisor in op.operands), None)

    def skip_division(self, division: Op) -> None:
        """Let the quotient of exponentials and their sum be the exponentials themselves."""
        self.emit(self.collect_needed([division.operands[0]], through=False))
        self.terms[division.result] = self.term(division.operands[0])

    def rescale_sum(self, name: str, exponential: Exponential | None) -> str:
        """Return an accumulator, relative to the new maximum if it sums exponentials."""
        if exponential is None:
            return name
        largest = exponential.largest
        return f"rescale({name}, {self.names[largest.result]}, {self.next_maxima[largest]})"

    def add_reduction(self, op: Op, exponential: Exponential | None = None) -> None:
        """Write the line that adds the tile's part to a reduction over the inner side."""
        name = self.names[op.result]
        part = self.tile_reduction(op)
        self.append_line(f"{name} = {accumulate(op, self.rescale_sum(name, exponential), part)}")

    def advance_maximum(self, op: Op) -> None:
        """Write the line that computes the maximum of all tiles including this one."""
        part = self.tile_reduction(op)
        name = self.group.named.own_name(f"{self.names[op.result]}_next")
        self.next_maxima[op] = name
        self.append_line(f"{name} = {accumulate(op, self.names[op.result], part)}")
        self.terms[op.result] = KernelTerm(name, op.result.type.dtype, spans=self.outer.spans)

    def tile_reduction(self, op: Op) -> str:
        """Return the reduction of a tile of scores."""
        self.emit(self.collect_needed([op.operands[0]], through=False))
        x = self.broadcast_to_tile(self.term(op.operands[0]))
        return reduce_tile(op, x, self.inner.mask, "1, keep_dims=True")

    def start_reduction(self, op: Op) -> None:
        """Write the line that initializes a reduction over the inner side."""
        shape = f"({self.outer.block}, 1)"
        first = identity_element(op).text
        self.append_line(f"{self.names[op.result]} = tl.full({shape}, {first}, tl.float32)")

    def start_sum(self, op: Op) -> None:
        """Write the line that initializes a column sum or a row sum."""
        length = self.feature_names(self.group.nest.scores_and_matrix(op)[1])[1]
        shape = f"({self.outer.block}, {length})"
        self.append_line(f"{self.names[op.result]} = tl.full({shape}, 0.0, tl.float32)")

    def store_sum(self, value: Value, pointer: str) -> None:
        """Write the store of a column sum or a row sum."""
        mask = self.matrix_mask(value, self.outer)
        rest = f", {mask}" if mask else ""
        offset = self.matrix_offset(value, self.outer)
        self.append_line(f"tl.store({pointer}{offset}, {self.names[value]}{rest})")

    def emit_outside(self, roots: Iterable[Value], loops: Iterable[int]) -> None:
        """Write the values that roots need and that vary along none of these loops."""
        inside = set(loops)
        ready = set[Value]()
        for value in self.collect_needed(roots, through=False):
            op = self.makers.get(value)
            operands = () if op is None else op.operands
            is_late = op is not None and self.is_nontrivial_reduction(op)
            is_ready = all(x in self.terms or x in ready for x in operands)
            if is_ready and not is_late and not inside.intersection(self.layout.axes_of[value]):
                ready.add(value)
        self.emit([value for value in self.block.values() if value in ready])


def make_score_writer(
    group: ProductsGroup,
    outer: TileSide,
    inner: TileSide,
    precision: str,
) -> ScoreWriter:
    """Return the writer of a kernel whose programs compute blocks of the outer side."""
    named = group.named
    batch = tuple(group.batch_side(loop) for loop in group.nest.batch_loops)
    letters = [named.own_name(letter) for letter in INDEX_NAMES]
    return ScoreWriter(
        named.block,
        named.layout,
        named.names,
        (*batch, outer, inner),
        IndexVariables(named.layout, letters),
        "i64" if named.is_large else "i32",
        group=group,
        outer=outer,
        inner=inner,
        precision=precision,
    )
