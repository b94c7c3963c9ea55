"""Reading of LAPACK custom calls, which JAX uses for decompositions on CPUs.

Outputs that such a call leaves undefined (the other triangle of a factor, an overwritten operand)
become zeros or the operand. The info output is 0 where the decomposition cannot fail here; JAX
detects NaN in the results instead.
"""

import re
from collections.abc import Callable

from shardir import ops as ops  # declares the operations
from shardir.ir.module import Value
from shardir.ir.operation import Attr
from shardir.ir.types import COMPLEX, TensorType
from shardir.stablehlo.reading import records
from shardir.stablehlo.reading.call import OperationReader, UnsupportedOperation
from shardir.stablehlo.reading.composed import rename_results, splat
from shardir.stablehlo.reading.decompositions import emit_solve
from shardir.stablehlo.reading.expansions import householder

Values = tuple[Value, ...]
Reader = Callable[[OperationReader, dict[str, str]], Values]

_TARGET = re.compile(r"lapack_[sdcz]([a-z0-9]+)_ffi")


def read_lapack(call: OperationReader, target: str) -> Values | None:
    """Read a LAPACK call; return `None` for other targets."""
    match = _TARGET.fullmatch(target)
    if match is None:
        return None
    if match[1] not in _READERS:
        raise UnsupportedOperation("the reader does not support this function of LAPACK")
    config = call.attrs.get("mhlo.backend_config")
    entries = config.entries if isinstance(config, records.DictRecord) else ()
    letters = {
        entry.key.strip('"'): chr(call.types.integer(entry.value))
        for entry in entries
        if "ui8" in str(entry.value)
    }
    return _READERS[match[1]](call, letters)


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


def _apply_reflections(call: OperationReader, letters: dict[str, str]) -> Values:
    del letters
    config = call.attrs.get("mhlo.backend_config")
    entries = config.entries if isinstance(config, records.DictRecord) else ()
    flags = {entry.key.strip('"'): call.types.flag(entry.value) for entry in entries}
    return householder.apply_reflections(call, flags["left"], flags["transpose"])


_READERS: dict[str, Reader] = {
    "potrf": _cholesky,
    "trsm": _solve,
    "getrf": _lu,
    "gesdd": _svd,
    "syevd": _eigh,
    "heevd": _eigh,
    "geev": _eig,
    "geqrf": householder.factorize_qr,
    "geqp3": householder.factorize_pivoted_qr,
    "orgqr": householder.multiply_reflections,
    "ungqr": householder.multiply_reflections,
    "ormqr": _apply_reflections,
    "unmqr": _apply_reflections,
    "gehrd": householder.reduce_to_hessenberg,
    "sytrd": householder.reduce_to_tridiagonal,
    "hetrd": householder.reduce_to_tridiagonal,
    "gtsv": householder.solve_tridiagonal,
}
