"""Reading of gtsv, the solution of tridiagonal systems by elimination with partial pivoting.

Row i of the eliminated system has a pivot, the element beside it, and one element more where the
row was exchanged with the next one (LAPACK Users' Guide, 3rd edition, section 2.3.1).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from shardir.ir.module import Value
from shardir.stablehlo.reading.call import OperationReader, rename_results
from shardir.stablehlo.reading.expansions.arithmetic import Tensor, full, repeat, tensors_of

Values = tuple[Value, ...]


@dataclass(frozen=True)
class _Rows:
    """Access to the rows of matrices with the same batch dimensions."""

    batch: tuple[int, ...]

    def read(self, x: Tensor, i: Tensor) -> Tensor:
        return x.slice_at(self._starts(i), (*self.batch, 1, x.type.shape[-1]))

    def write(self, x: Tensor, new: Tensor, i: Tensor) -> Tensor:
        return x.update_at(new, self._starts(i))

    def _starts(self, i: Tensor) -> list[Tensor | int]:
        return [*(0 for _ in self.batch), i, 0]


def solve_tridiagonal(call: OperationReader, letters: dict[str, str]) -> Values:
    """Read gtsv; info is nonzero if a pivot is zero.

    The overwritten diagonals, which LAPACK leaves undefined, are the operands.
    """
    del letters
    lower, diagonal, upper, right = tensors_of(call, call.take_operands(4))
    *batch, size = diagonal.type.shape
    rows, shape = _Rows(tuple(batch)), right.type.shape
    low, pivots, beside = (
        x.broadcast(shape, range(len(batch) + 1)) for x in (lower, diagonal, upper)
    )
    # LAPACK does not read the last element of the upper diagonal.
    beside = (beside.iota(len(batch)) < size - 1).where(beside, 0)
    none = full(right.emit, 0, right.type)

    def eliminate(i: Tensor, values: list[Tensor]) -> Sequence[Tensor]:
        return _eliminate(rows, low, i, values)

    pivots, beside, further, b = repeat(
        call, max(size - 1, 0), [pivots, beside, none, right], eliminate
    )
    zero = full(right.emit, 0, right.type.with_shape((*batch, 1, shape[-1])))

    def substitute(i: Tensor, values: list[Tensor]) -> Sequence[Tensor]:
        x, next_row, row_after = values
        here = (size - 1) - i
        rest = rows.read(b, here) - rows.read(beside, here) * next_row
        rest = rest - rows.read(further, here) * row_after
        solved = rest / rows.read(pivots, here)
        return rows.write(x, solved, here), solved, next_row

    solution, _, _ = repeat(call, size, [b, zero, zero], substitute)
    dims = (len(batch), len(batch) + 1)
    info = pivots.equals(0).apply("any", dims=dims).convert("i32")
    unchanged = [x.reshape(x.type.shape) for x in (lower, diagonal, upper)]
    return rename_results(call, [x.value for x in (*unchanged, solution, info)])


def _eliminate(rows: _Rows, low: Tensor, i: Tensor, values: list[Tensor]) -> Sequence[Tensor]:
    """Eliminate the element below pivot `i`, after an exchange if it is larger than the pivot."""
    pivots, beside, further, b = values
    after = i + 1
    pivot, above, here = (rows.read(x, i) for x in (pivots, beside, b))
    below, next_pivot, next_above, there = (rows.read(x, after) for x in (low, pivots, beside, b))
    is_exchanged = pivot.apply("abs") < below.apply("abs")
    factor = is_exchanged.where(pivot, below) / is_exchanged.where(below, pivot)
    kept = is_exchanged.where(there, here)
    new = {
        "pivot": is_exchanged.where(above, next_pivot)
        - factor * is_exchanged.where(next_pivot, above),
        "above": is_exchanged.where(-(factor * next_above), next_above),
        "right": is_exchanged.where(here, there) - factor * kept,
    }
    pivots = rows.write(pivots, is_exchanged.where(below, pivot), i)
    beside = rows.write(beside, is_exchanged.where(next_pivot, above), i)
    further = rows.write(further, is_exchanged.where(next_above, 0), i)
    return (
        rows.write(pivots, new["pivot"], after),
        rows.write(beside, new["above"], after),
        further,
        rows.write(rows.write(b, kept, i), new["right"], after),
    )
