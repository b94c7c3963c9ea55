"""Reading of factorizations by Householder reflections, which LAPACK packs into one matrix.

A reflection is H = 1 - tau v v^H. Its vector v is a column of the packed matrix below a row, with a
1 in that row; LAPACK chooses tau such that H^H maps a vector to a real multiple of a unit vector
(LAPACK Users' Guide, 3rd edition, section 5.4). Matrices are the last two dimensions.
"""

from collections.abc import Sequence
from string import ascii_lowercase
from typing import NamedTuple

from shardir.ir.module import Value
from shardir.stablehlo.reading.call import OperationReader, UnsupportedOperation, rename_results
from shardir.stablehlo.reading.expansions.arithmetic import Tensor, full, repeat, tensors_of

Values = tuple[Value, ...]


class _Reflection(NamedTuple):
    """The reflection of a column: its vector, scale, and the column that is stored."""

    vector: Tensor
    tau: Tensor
    stored: Tensor


def factorize_qr(call: OperationReader, letters: dict[str, str]) -> Values:
    """Read geqrf: R and the vectors in one matrix, and the scales."""
    del letters
    (x,) = tensors_of(call, call.take_operands(1))
    packed, taus = _factorize(call, x, min(x.type.shape[-2:]))
    return rename_results(call, [packed.value, taus.value])


def factorize_pivoted_qr(call: OperationReader, letters: dict[str, str]) -> Values:
    """Read geqp3: in each step the remaining column of the largest norm comes first."""
    del letters
    matrix, pinned = call.take_operands(2)
    if call.reader.constant_of(pinned) != 0:
        raise UnsupportedOperation("it moves chosen columns to the front")
    (x,) = tensors_of(call, [matrix])
    batch, columns = x.type.shape[:-2], x.type.shape[-1]
    count = min(x.type.shape[-2:])
    numbers = Tensor(pinned, x.emit).iota(len(batch)) + 1

    def step(i: Tensor, values: list[Tensor]) -> Sequence[Tensor]:
        matrix, taus, pivots = values
        first = _largest_remaining_column(matrix, i)
        matrix, pivots = (_swap_last(each, i, first) for each in (matrix, pivots))
        return [*_factorize_column(matrix, taus, i), pivots]

    taus = full(x.emit, 0, x.type.with_shape((*batch, count)))
    packed, taus, pivots = repeat(call, count, [x, taus, numbers], step)
    assert pivots.type.shape[-1] == columns
    return rename_results(call, [packed.value, pivots.value, taus.value])


def reduce_to_hessenberg(call: OperationReader, letters: dict[str, str]) -> Values:
    """Read gehrd: the reduction to Hessenberg form of the whole matrix."""
    del letters
    (x,) = tensors_of(call, call.take_operands(1))
    packed, taus = _reduce_by_similarity(call, x)
    info = full(x.emit, 0, call.results[2])
    return rename_results(call, [packed.value, taus.value, info.value])


def reduce_to_tridiagonal(call: OperationReader, letters: dict[str, str]) -> Values:
    """Read sytrd and hetrd of the lower triangle, a reduction to Hessenberg form."""
    if letters.get("uplo") != "L":
        raise UnsupportedOperation("it reads the upper triangle")
    (x,) = tensors_of(call, call.take_operands(1))
    rank, size = x.type.rank, x.type.shape[-1]
    row, column = x.iota(rank - 2), x.iota(rank - 1)
    mirrored = x.apply("transpose", perm=(*range(rank - 2), rank - 1, rank - 2))
    if x.is_complex():
        mirrored = mirrored.apply("conj")
    packed, taus = _reduce_by_similarity(call, (row >= column).where(x, mirrored))
    stored = (row >= column).where(packed, x)
    diagonal = diagonal_of(packed, 0)
    beside = diagonal_of(packed, 1)
    info = full(x.emit, 0, call.results[4])
    assert diagonal.type.shape[-1] == size
    values = [stored, *(y.apply("real") if y.is_complex() else y for y in (diagonal, beside))]
    return rename_results(call, [x.value for x in (*values, taus, info)])


def multiply_reflections(call: OperationReader, letters: dict[str, str]) -> Values:
    """Read orgqr and ungqr: the first columns of the product of reflections."""
    del letters
    packed, taus = tensors_of(call, call.take_operands(2))
    rank = packed.type.rank
    identity = packed.iota(rank - 2).equals(packed.iota(rank - 1)).convert(packed.type.dtype)
    product = _apply_reflections(call, packed, taus, identity, left=True, adjoint=False)
    return rename_results(call, [product.value])


def apply_reflections(call: OperationReader, left: bool, adjoint: bool) -> Values:
    """Read ormqr and unmqr: the product of a matrix and the product of reflections."""
    packed, taus, x = tensors_of(call, call.take_operands(3))
    product = _apply_reflections(call, packed, taus, x, left=left, adjoint=adjoint)
    return rename_results(call, [product.value])


def _factorize(call: OperationReader, x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    taus = full(x.emit, 0, x.type.with_shape((*x.type.shape[:-2], count)))
    packed, taus = repeat(
        call, count, [x, taus], lambda i, values: _factorize_column(values[0], values[1], i)
    )
    return packed, taus


def _factorize_column(matrix: Tensor, taus: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
    """Reflect column `i` to its row `i`, and the columns behind it."""
    made = _reflect(matrix, i, i)
    new = _reflect_rows(matrix, made, adjoint=True)
    return _store(matrix, new, made, i), _store_tau(taus, made.tau, i)


def _reduce_by_similarity(call: OperationReader, x: Tensor) -> tuple[Tensor, Tensor]:
    count = max(x.type.shape[-1] - 1, 0)

    def step(i: Tensor, values: list[Tensor]) -> Sequence[Tensor]:
        matrix, taus = values
        made = _reflect(matrix, i, i + 1)
        new = _reflect_rows(matrix, made, adjoint=True)
        new = _reflect_columns(new, made, adjoint=False)
        return _store(matrix, new, made, i), _store_tau(taus, made.tau, i)

    taus = full(x.emit, 0, x.type.with_shape((*x.type.shape[:-2], count)))
    packed, taus = repeat(call, count, [x, taus], step)
    return packed, taus


def _apply_reflections(
    call: OperationReader, packed: Tensor, taus: Tensor, x: Tensor, *, left: bool, adjoint: bool
) -> Tensor:
    """Return Q x, Q^H x, x Q or x Q^H, where Q is the product of all reflections in order."""
    count = taus.type.shape[-1]
    is_reversed = left != adjoint

    def step(i: Tensor, values: list[Tensor]) -> Sequence[Tensor]:
        number = (count - 1) - i if is_reversed else i
        column = _column(packed, number)
        row = column.iota(column.type.rank - 2)
        at = _like(number, row)
        vector = (row > at).where(column, row.equals(at).convert(column.type.dtype))
        starts: list[Tensor | int] = [*(0 for _ in taus.type.shape[:-1]), number]
        tau = taus.slice_at(starts, (*taus.type.shape[:-1], 1))
        made = _Reflection(vector, tau.reshape((*tau.type.shape, 1)), column)
        reflect = _reflect_rows if left else _reflect_columns
        return [reflect(values[0], made, adjoint=adjoint)]

    return repeat(call, count, [x], step)[0]


def _reflect(matrix: Tensor, i: Tensor, pivot_row: Tensor) -> _Reflection:
    """Return the reflection that maps column `i` from `pivot_row` on to that row."""
    rank = matrix.type.rank
    column = _column(matrix, i)
    row = column.iota(rank - 2)
    at = _like(pivot_row, row)
    is_pivot, is_below = row.equals(at), row > at
    tail, head = is_below.where(column, 0), is_pivot.where(column, 0)
    alpha = head.apply("sum", dims=(rank - 2,))
    magnitude = tail.apply("abs")
    tail_square = (magnitude * magnitude).apply("sum", dims=(rank - 2,))
    real = alpha.apply("real") if alpha.is_complex() else alpha
    size = alpha.apply("abs")
    norm = (size * size + tail_square).apply("sqrt")
    is_done = tail_square.equals(0)
    if alpha.is_complex():
        is_done = is_done & alpha.apply("imag").equals(0)
    beta = is_done.where(real, (real < 0).where(norm, -norm)).convert(alpha.type.dtype)
    divisor = is_done.where(1, beta)
    tau = is_done.where(0, (beta - alpha) / divisor)
    scale = is_done.where(1, 1 / is_done.where(1, alpha - beta))
    shape = column.type.shape
    dims = (*range(rank - 2), rank - 1)
    scaled = is_below.where(column * scale.broadcast(shape, dims), 0)
    one = is_pivot.convert(column.type.dtype)
    stored = is_below.where(scaled, is_pivot.where(beta.broadcast(shape, dims), column))
    return _Reflection(scaled + one, tau.reshape((*tau.type.shape, 1)), stored)


def _store(matrix: Tensor, new: Tensor, made: _Reflection, i: Tensor) -> Tensor:
    """Return the matrix with the new columns behind `i` and the stored column at `i`."""
    rank = matrix.type.rank
    column = matrix.iota(rank - 1)
    at = _like(i, column)
    stored = made.stored.broadcast(matrix.type.shape, range(rank))
    return (column > at).where(new, column.equals(at).where(stored, matrix))


def _store_tau(taus: Tensor, tau: Tensor, i: Tensor) -> Tensor:
    batch = taus.type.shape[:-1]
    return taus.update_at(tau.reshape((*batch, 1)), [*(0 for _ in batch), i])


def _reflect_rows(x: Tensor, made: _Reflection, *, adjoint: bool) -> Tensor:
    """Return H x, or H^H x."""
    along = _dot(_conjugate(made.vector), x, "mk,mn->kn")
    return x - _scale(made, adjoint, _dot(made.vector, along, "mk,kn->mn"))


def _reflect_columns(x: Tensor, made: _Reflection, *, adjoint: bool) -> Tensor:
    """Return x H, or x H^H."""
    along = _dot(x, made.vector, "nm,mk->nk")
    return x - _scale(made, adjoint, _dot(along, _conjugate(made.vector), "nk,mk->nm"))


def _scale(made: _Reflection, adjoint: bool, x: Tensor) -> Tensor:
    tau = _conjugate(made.tau) if adjoint else made.tau
    return x * tau.broadcast(x.type.shape, range(x.type.rank))


def _conjugate(x: Tensor) -> Tensor:
    return x.apply("conj") if x.is_complex() else x


def _dot(x: Tensor, y: Tensor, dims: str) -> Tensor:
    """Return an einsum of matrices, whose letters are k, m and n; batch dimensions are added."""
    letters = [letter for letter in ascii_lowercase if letter not in "kmn"]
    batch = "".join(letters[: x.type.rank - 2])
    operands, _, result = dims.partition("->")
    left, right = operands.split(",")
    return x.apply("dot", y, dims=f"{batch}{left},{batch}{right}->{batch}{result}")


def _column(matrix: Tensor, i: Tensor) -> Tensor:
    """Return column `i` as a matrix of one column."""
    *batch, rows, _ = matrix.type.shape
    return matrix.slice_at([*(0 for _ in batch), 0, i], (*batch, rows, 1))


def _like(i: Tensor, numbers: Tensor) -> Tensor:
    return i.broadcast(numbers.type.shape, ())


def diagonal_of(x: Tensor, below: int) -> Tensor:
    """Return the diagonal that is `below` rows below the main one."""
    rank, shape = x.type.rank, x.type.shape
    is_there = x.iota(rank - 2).equals(x.iota(rank - 1) + below)
    values = is_there.where(x, 0).apply("sum", dims=(rank - 2,))
    return values.apply(
        "slice", starts=(0,) * (rank - 1), strides=(1,) * (rank - 1),
        result=values.type.with_shape((*shape[:-2], max(shape[-1] - below, 0))),
    )  # fmt: skip


def _largest_remaining_column(matrix: Tensor, i: Tensor) -> Tensor:
    """Return per matrix the number of the column from `i` on with the largest norm below `i`."""
    rank, columns = matrix.type.rank, matrix.type.shape[-1]
    row, column = matrix.iota(rank - 2), matrix.iota(rank - 1)
    size = matrix.apply("abs")
    norm = (row >= _like(i, row)).where(size * size, 0).apply("sum", dims=(rank - 2,))
    number = norm.iota(rank - 2)
    candidate = (number >= _like(i, number)).where(norm, -1)
    largest = candidate.apply("max", dims=(rank - 2,))
    wide = largest.broadcast(candidate.type.shape, range(rank - 2))
    assert column.type.shape[-1] == columns
    return candidate.equals(wide).where(number, columns).apply("min", dims=(rank - 2,))


def _swap_last(x: Tensor, i: Tensor, others: Tensor) -> Tensor:
    """Return `x` with the elements `i` and `others` of the last dimension swapped."""
    rank, shape = x.type.rank, x.type.shape
    number = x.iota(rank - 1)
    batch = others.type.rank
    first, second = _like(i, number), others.broadcast(shape, range(batch))
    is_first, is_second = number.equals(first), number.equals(second)
    at_first = is_first.where(x, 0).apply("sum", dims=(rank - 1,))
    at_second = is_second.where(x, 0).apply("sum", dims=(rank - 1,))
    at_first, at_second = (y.broadcast(shape, range(rank - 1)) for y in (at_first, at_second))
    return is_first.where(at_second, is_second.where(at_first, x))
