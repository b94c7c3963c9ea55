"""Reading of LAPACK custom calls, which JAX uses for decompositions on CPUs.

Outputs that such a call leaves undefined (the other triangle of a factor, an overwritten operand)
become zeros or the operand. The info output is 0 where the decomposition cannot fail here; JAX
detects NaN in the results instead.
"""

import re
from collections.abc import Callable

from shardir import ops as ops  # declares the operations
from shardir.errors import count_noun
from shardir.ir.module import Value
from shardir.ir.operation import Attr
from shardir.ir.types import COMPLEX, TensorType
from shardir.stablehlo.reading import records
from shardir.stablehlo.reading.call import OperationReader, UnsupportedOperation, rename_results
from shardir.stablehlo.reading.composed import splat
from shardir.stablehlo.reading.decompositions import emit_solve
from shardir.stablehlo.reading.expansions import householder, tridiagonal
from shardir.stablehlo.reading.expansions.arithmetic import Tensor, full, tensors_of

Values = tuple[Value, ...]
Reader = Callable[[OperationReader, dict[str, str]], Values]

_TARGET = re.compile(r"lapack_([sdcz])([a-z0-9]+)_ffi")


def read_lapack(call: OperationReader, target: str) -> Values | None:
    """Read a LAPACK call; return `None` for other targets."""
    match = _TARGET.fullmatch(target)
    if match is None:
        return None
    if match[2] not in _READERS:
        raise UnsupportedOperation("the reader does not support this function of LAPACK")
    reader, *counts = _READERS[match[2]]
    expected = counts[match[1] in "cz"]
    if len(call.results) != expected:
        raise call.fail(f"{target} has {count_noun(expected, 'result')}, not {len(call.results)}")
    config = call.attrs.get("mhlo.backend_config")
    entries = config.entries if isinstance(config, records.DictRecord) else ()
    letters = {
        entry.key.strip('"'): chr(call.types.integer(entry.value))
        for entry in entries
        if "ui8" in str(entry.value)
    }
    return reader(call, letters)


def is_lapack(call: OperationReader) -> bool:
    """Return whether the call is one of LAPACK, whose sharding rule JAX states."""
    if call.name != "stablehlo.custom_call" or call.symbol is None:
        return False
    return _TARGET.fullmatch(call.types.string(call.symbol)) is not None


def _emit_multi_result(
    call: OperationReader, name: str, *operands: Value, **attrs: Attr
) -> tuple[Value, ...]:
    """Emit an intermediate operation with several results."""
    if call.reader.module.keep_opaque:
        raise UnsupportedOperation("it corresponds to several operations")
    types = call.infer(name, operands, (), (), attrs)
    values = tuple(Value(type, call.reader.names.fresh(call.derive_name(name))) for type in types)
    call.reader.append(name, operands, values, attrs, (), call.written.loc)
    return values


def _zero(call: OperationReader, type: TensorType) -> Value:
    return splat(call, 0, type)


def _cholesky(call: OperationReader, letters: dict[str, str]) -> Values:
    """Read a Cholesky factorization, which fails if the factor has NaN."""
    (x,) = call.take_operands(1)
    if letters.get("uplo") != "L":
        raise UnsupportedOperation("it reads the upper triangle")
    factor = call.emit_step("cholesky", x)
    wrong = call.emit_step("ne", factor, factor)
    failed = call.emit_step("any", wrong, dims=(x.type.rank - 2, x.type.rank - 1))
    return rename_results(call, [factor, call.emit_step("convert", failed, result=call.results[1])])


def _solve(call: OperationReader, letters: dict[str, str]) -> Values:
    transpose = {"N": "no", "T": "transpose", "C": "adjoint"}[letters.get("trans_x", "N")]
    return emit_solve(
        call,
        transpose,
        left=letters.get("side") == "L",
        lower=letters.get("uplo") == "L",
        unit=letters.get("diag") == "U",
    )


def _lu(call: OperationReader, letters: dict[str, str]) -> Values:
    """Read an LU factorization: pivots count from 1, info is the first zero on U's diagonal."""
    (x,) = call.take_operands(1)
    packed, pivots, _ = _emit_multi_result(call, "lu", x)
    rank, size = x.type.rank, min(x.type.shape[-2:])
    from_one = call.emit_step("add", pivots, splat(call, 1, pivots.type))
    numbers = x.type.with_dtype("i32")
    row = call.emit_step("iota", dim=rank - 2, result=numbers)
    column = call.emit_step("iota", dim=rank - 1, result=numbers)
    zero = call.emit_step("eq", packed, _zero(call, x.type))
    singular = call.emit_step("and", zero, call.emit_step("eq", row, column))
    beyond = splat(call, size, numbers)
    first = call.emit_step(
        "min", call.emit_step("select", singular, row, beyond), dims=(rank - 2, rank - 1)
    )
    info = call.emit_step("add", first, splat(call, 1, first.type))
    regular = call.emit_step("eq", first, splat(call, size, first.type))
    info_or_zero = call.emit_step("select", regular, _zero(call, first.type), info)
    return rename_results(call, [packed, from_one, info_or_zero])


def _svd(call: OperationReader, letters: dict[str, str]) -> Values:
    (x,) = call.take_operands(1)
    mode = letters.get("mode", "A")
    info = _zero(call, call.results[4])
    if mode == "N":
        (values,) = _emit_multi_result(call, "svd", x, full=False, vectors=False)
        left, right = (_zero(call, type) for type in call.results[2:4])
    else:
        left, values, right = _emit_multi_result(call, "svd", x, full=mode == "A", vectors=True)
    return rename_results(call, [operand_as_result(call, x), values, left, right, info])


def operand_as_result(call: OperationReader, x: Value) -> Value:
    """Return the operand as a result, in place of undefined overwritten contents."""
    return call.emit_step("reshape", x, result=x.type)


def _eigh(call: OperationReader, letters: dict[str, str]) -> Values:
    (x,) = call.take_operands(1)
    if letters.get("uplo") != "L":
        raise UnsupportedOperation("it reads the upper triangle")
    info = _zero(call, call.results[2])
    if letters.get("mode") == "N":
        (values,) = _emit_multi_result(call, "eigh", x, vectors=False)
        return rename_results(call, [operand_as_result(call, x), values, info])
    values, vectors = _emit_multi_result(call, "eigh", x, vectors=True)
    return rename_results(call, [vectors, values, info])


def _eig(call: OperationReader, letters: dict[str, str]) -> Values:
    """Read eigenvalues; those of a real matrix are two results, real and imaginary parts."""
    (x,) = call.take_operands(1)
    if letters.get("compute_left") == "V":
        raise UnsupportedOperation("it requests left eigenvectors")
    needs_vectors = letters.get("compute_right") == "V"
    values, *rest = _emit_multi_result(call, "eig", x, vectors=needs_vectors)
    parts = [values]
    if x.type.dtype not in COMPLEX:
        parts = [call.emit_step(name, values) for name in ("real", "imag")]
    left, right, info = call.results[len(parts) :]
    vectors = rest[0] if needs_vectors else _zero(call, right)
    return rename_results(call, [*parts, _zero(call, left), vectors, _zero(call, info)])


def _schur(call: OperationReader, letters: dict[str, str]) -> Values:
    """Read gees; the eigenvalues of a real matrix are two results, real and imaginary parts."""
    if letters.get("sort") == "S":
        raise UnsupportedOperation("it sorts the eigenvalues")
    (x,) = call.take_operands(1)
    vectors = _zero(call, call.results[1])
    if letters.get("mode") == "V":
        form, vectors = _emit_multi_result(call, "schur", x, vectors=True)
    else:
        (form,) = _emit_multi_result(call, "schur", x, vectors=False)
    (matrix,) = tensors_of(call, [form])
    parts = _eigenvalues_of_blocks(matrix)
    selected, info = (_zero(call, type) for type in call.results[-2:])
    return rename_results(call, [form, vectors, *(each.value for each in parts), selected, info])


def _eigenvalues_of_blocks(matrix: Tensor) -> list[Tensor]:
    """Return the eigenvalues of a complex triangular matrix, or the real and the imaginary parts of
    those of a real matrix with blocks of one or two rows on its diagonal.
    """
    diagonal = householder.diagonal_of(matrix, 0)
    if matrix.is_complex():
        return [diagonal]
    rank, size = matrix.type.rank, matrix.type.shape[-1]
    if size < 2:
        return [diagonal, diagonal * 0]
    mirrored = matrix.apply("transpose", perm=(*range(rank - 2), rank - 1, rank - 2))
    below, above = (householder.diagonal_of(x, 1) for x in (matrix, mirrored))
    first, second = (_take_elements(diagonal, start, size - 1) for start in (0, 1))
    half = (first - second) / 2
    square = half * half + below * above
    real, imaginary = (x.apply("maximum", 0).apply("sqrt") for x in (square, -square))
    has_block = below.differs(0)
    shift, imaginary = (has_block.where(x, 0) for x in (real - half, imaginary))
    return [diagonal + _add_opposites(shift), _add_opposites(imaginary)]


def _take_elements(x: Tensor, start: int, size: int) -> Tensor:
    rank, shape = x.type.rank, (*x.type.shape[:-1], size)
    starts = (*(0 for _ in shape[1:]), start)
    return x.apply("slice", starts=starts, strides=(1,) * rank, result=x.type.with_shape(shape))


def _add_opposites(x: Tensor) -> Tensor:
    """Return a vector with one element more, to whose elements i and i + 1 x[i] and -x[i] are
    added."""
    zero = full(x.emit, 0, x.type.with_shape((*x.type.shape[:-1], 1)))
    last = x.type.rank - 1
    return x.apply("concatenate", zero, dim=last) - zero.apply("concatenate", x, dim=last)


def _apply_reflections(call: OperationReader, letters: dict[str, str]) -> Values:
    del letters
    config = call.attrs.get("mhlo.backend_config")
    entries = config.entries if isinstance(config, records.DictRecord) else ()
    flags = {entry.key.strip('"'): call.types.flag(entry.value) for entry in entries}
    return householder.apply_reflections(call, flags["left"], flags["transpose"])


_READERS: dict[str, tuple[Reader, int, int]] = {
    "potrf": (_cholesky, 2, 2),
    "trsm": (_solve, 1, 1),
    "getrf": (_lu, 3, 3),
    "gesdd": (_svd, 5, 5),
    "gesvd": (_svd, 5, 5),
    "syevd": (_eigh, 3, 3),
    "heevd": (_eigh, 3, 3),
    "geev": (_eig, 5, 4),
    "gees": (_schur, 6, 5),
    "geqrf": (householder.factorize_qr, 2, 2),
    "geqp3": (householder.factorize_pivoted_qr, 3, 3),
    "orgqr": (householder.multiply_reflections, 1, 1),
    "ungqr": (householder.multiply_reflections, 1, 1),
    "ormqr": (_apply_reflections, 1, 1),
    "unmqr": (_apply_reflections, 1, 1),
    "gehrd": (householder.reduce_to_hessenberg, 3, 3),
    "sytrd": (householder.reduce_to_tridiagonal, 5, 5),
    "hetrd": (householder.reduce_to_tridiagonal, 5, 5),
    "gtsv": (tridiagonal.solve_tridiagonal, 5, 5),
}
"""For each function, its reader and the numbers of its results for real and complex matrices."""
