"""Lowering rules of contractions: `poplin::matMul`, or `matMulGrouped` for batches.

Each dimension's letter is a batch letter (in both operands and the result), a row, a column, or a
contracted letter; permuting each operand into the order batch, row, column is a view.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from shardir.backends.ipu.codegen.device_types import element_of
from shardir.backends.ipu.codegen.emitter import ProgramEmitter, reshape_view, shuffle_view
from shardir.backends.ipu.lowering.lowering_table import lowers
from shardir.backends.ipu.lowering.reductions import reduce_text
from shardir.ir.module import Op
from shardir.ir.types import FLOATS, TensorType


@dataclass(frozen=True)
class ContractionLetters:
    """The letters of a contraction by kind, in the order of the result, contracted ones of the
    left.
    """

    groups: str
    rows: str
    columns: str
    contracting: str
    result: str

    @classmethod
    def of(cls, dims: str) -> "ContractionLetters":
        """Classify the letters of an einsum in which no letter is summed in only one operand."""
        operands, result = dims.split("->")
        left, right = operands.split(",")
        return cls(
            "".join(c for c in result if c in left and c in right),
            "".join(c for c in result if c in left and c not in right),
            "".join(c for c in result if c in right and c not in left),
            "".join(c for c in left if c in right and c not in result),
            result,
        )


def is_transposed(letters: ContractionLetters) -> bool:
    """Return whether columns precede rows in the result: then the operands are swapped."""
    if not letters.rows or not letters.columns:
        return False
    return letters.result.index(letters.columns[0]) < letters.result.index(letters.rows[0])


@lowers("dot")
def _dot(e: ProgramEmitter, op: Op) -> None:
    e.comment(op)
    y, dims = op.result, op.attrs["dims"]
    texts = [e.text(x) for x in op.operands]
    types = [x.type for x in op.operands]
    terms = dims.split("->")[0].split(",")
    for i, other in ((0, 1), (1, 0)):
        alone = [c for c in terms[i] if c not in terms[other] and c not in dims.split("->")[1]]
        if alone:
            folded = tuple(terms[i].index(c) for c in alone)
            texts[i] = reduce_text(e, texts[i], types[i], folded, "ADD", e.label(y))
            kept = [d for d in range(types[i].rank) if d not in folded]
            types[i] = types[i].with_shape([types[i].shape[d] for d in kept])
            terms[i] = "".join(terms[i][d] for d in kept)
    result = dims.split("->")[1]
    letters = ContractionLetters.of(f"{terms[0]},{terms[1]}->{result}")
    if is_transposed(letters):
        texts, types, terms = texts[::-1], types[::-1], terms[::-1]
        letters = ContractionLetters.of(f"{terms[0]},{terms[1]}->{result}")
    made = contraction_text(e, texts, types, terms, letters, y.type, e.label(y))
    e.define(y, made)


def contraction_text(
    e: ProgramEmitter,
    texts: Sequence[str],
    types: Sequence[TensorType],
    terms: Sequence[str],
    letters: ContractionLetters,
    result: TensorType,
    label: str,
) -> str:
    """Return the expression of a contraction."""
    sizes = {
        c: n
        for term, type in zip(terms, types, strict=True)
        for c, n in zip(term, type.shape, strict=True)
    }
    order = (letters.groups, letters.rows, letters.contracting, letters.columns)
    counts = tuple(prod(sizes[c] for c in part) for part in order)
    if types[0].dtype not in FLOATS or not letters.contracting:
        return _elementwise_contraction(
            e, texts, terms, letters, sizes, types[0].dtype, result, label
        )
    groups, rows, summed, columns = counts
    batch = (groups,) if letters.groups else ()
    left = _matrix_view(texts[0], terms[0], order[:3], sizes, (*batch, rows, summed))
    right = _matrix_view(texts[1], terms[1], (order[0], order[2], order[3]), sizes,
                    (*batch, summed, columns))  # fmt: skip
    call = "matMulGrouped" if batch else "matMul"
    to = ""
    if batch or result.dtype != types[0].dtype:
        to = f", {element_of(result).poplar}"
    made = f"poplin::{call}(graph, {left}, {right}, {e.sequence}{to}, {label})"
    return _result_view(made, (*batch, rows, columns), letters, sizes)


def _matrix_view(
    text: str, term: str, parts: Sequence[str], sizes: dict[str, int], shape: Sequence[int]
) -> str:
    """Return the view of an operand as one matrix, or as a batch of matrices."""
    letters = "".join(parts)
    view = shuffle_view(text, [term.index(c) for c in letters])
    return reshape_view(view, [sizes[c] for c in letters], shape)


def _result_view(
    made: str, shape: Sequence[int], letters: ContractionLetters, sizes: dict[str, int]
) -> str:
    """Return the view of a product with the dimensions of the result."""
    natural = letters.groups + letters.rows + letters.columns
    view = reshape_view(made, shape, [sizes[c] for c in natural])
    return shuffle_view(view, [natural.index(c) for c in letters.result])


def _elementwise_contraction(
    e: ProgramEmitter,
    texts: Sequence[str],
    terms: Sequence[str],
    letters: ContractionLetters,
    sizes: dict[str, int],
    dtype: str,
    result: TensorType,
    label: str,
) -> str:
    """Return elementwise products and their sum, for integers and outer products, which matrix
    units do not support.
    """
    every = letters.result + letters.contracting
    shape = [sizes[c] for c in every]
    views = []
    for text, term in zip(texts, terms, strict=True):
        kept = [c for c in every if c in term]
        view = shuffle_view(text, [term.index(c) for c in kept])
        aligned = [sizes[c] if c in term else 1 for c in every]
        view = reshape_view(view, [sizes[c] for c in kept], aligned)
        for dim, (have, want) in enumerate(zip(aligned, shape, strict=True)):
            view += f".broadcast({want}, {dim})" if have != want else ""
        views.append(view)
    to = element_of(result).poplar
    wide = result.dtype
    if dtype != wide:
        views = [f"popops::cast(graph, {v}, {to}, {e.sequence}, {label})" for v in views]
    narrow = wide in ("i8", "u8", "i16", "u16")
    one, two = ("pe::Cast(pe::_1, poplar::INT)", "pe::Cast(pe::_2, poplar::INT)")
    product = f"pe::Cast({one} * {two}, {to})" if narrow else "pe::_1 * pe::_2"
    made = e.map_text(product, views, label)
    summed = tuple(range(len(letters.result), len(every)))
    return reduce_text(e, made, TensorType(tuple(shape), wide), summed, "ADD", label)
