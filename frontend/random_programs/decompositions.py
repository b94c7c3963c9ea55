"""Samplers of Fourier transforms and operations on matrices.

Matrices are close to a diagonal of increasing numbers, so that their decompositions are stable.
"""

import numpy as np

from shardir.frontend.random_programs.scope import SIZES, Scope, sampler
from shardir.ir.module import Value
from shardir.ir.operation import Dense, Symbol
from shardir.ir.types import COMPLEX, REAL_OF, TensorType

FIELD = ("f32", "f64", "c64", "c128")


@sampler("fft")
def _(s: Scope, name: str) -> None:
    kind = s.choose("fft", "ifft", "rfft", "irfft")
    x = s.tensor(tuple(REAL_OF.values()) if kind == "rfft" else COMPLEX, low=1)
    result = None
    if kind == "irfft":
        last = max(2 * (x.type.shape[-1] - 1) + s.integer(0, 1), 1)
        result = TensorType((*x.type.shape[:-1], last), REAL_OF[x.type.dtype])
    s.emit(name, x, kind=Symbol(kind), rank=s.integer(1, x.type.rank), result=result)


def _diagonal_dominant(s: Scope, rows: int, columns: int) -> Value:
    """Return matrices that are close to a diagonal."""
    dtype, outer = s.choose(*FIELD), s.shape(0, 1)
    x = s.value(TensorType((*outer, rows, columns), dtype))
    type = x.type
    steps = np.eye(rows, columns) * 4 * np.arange(1, rows + 1)[:, None]
    matrix = s.b.constant(
        value=Dense(steps.astype(type.numpy)), result=type.with_shape((rows, columns))
    )
    spread = s.b.broadcast(matrix, dims=(type.rank - 2, type.rank - 1), result=type)
    small = s.b.sin(x)
    result: Value = s.b.add(s.b.mul(small, s.b.full(0.25, type)), spread)
    return result


def _choose_sizes(s: Scope) -> tuple[int, int]:
    return s.choose(*SIZES), s.choose(*SIZES)


@sampler("cholesky")
def _(s: Scope, name: str) -> None:
    rows, _ = _choose_sizes(s)
    s.emit(name, _diagonal_dominant(s, rows, rows))


@sampler("lu")
def _(s: Scope, name: str) -> None:
    s.emit(name, _diagonal_dominant(s, *_choose_sizes(s)))


@sampler("triangular_solve")
def _(s: Scope, name: str) -> None:
    rows, columns = _choose_sizes(s)
    a = _diagonal_dominant(s, rows, rows)
    y = s.value(a.type.with_shape((*a.type.shape[:-1], columns)))
    transpose = Symbol(s.choose("no", "transpose", "adjoint"))
    s.emit(name, a, y, lower=s.flag(), unit=s.flag(), transpose=transpose)


@sampler("qr")
def _(s: Scope, name: str) -> None:
    s.emit(name, _diagonal_dominant(s, *_choose_sizes(s)), full=s.flag())


@sampler("svd")
def _(s: Scope, name: str) -> None:
    s.emit(name, _diagonal_dominant(s, *_choose_sizes(s)), full=s.flag(), vectors=s.flag())


@sampler("eigh")
def _(s: Scope, name: str) -> None:
    rows, _ = _choose_sizes(s)
    s.emit(name, _diagonal_dominant(s, rows, rows), vectors=s.flag())


@sampler("eig")
def _(s: Scope, name: str) -> None:
    rows, _ = _choose_sizes(s)
    # The sign of a vector turns with the last bit of the matrix.
    s.emit(name, _diagonal_dominant(s, rows, rows), vectors=False)


@sampler("schur")
def _(s: Scope, name: str) -> None:
    rows, _ = _choose_sizes(s)
    # The signs of elements above the diagonal turn with those of the vectors.
    form: Value = s.b.schur(_diagonal_dominant(s, rows, rows), vectors=False)
    s.emit("abs", form)


@sampler("pinv")
def _(s: Scope, name: str) -> None:
    x = _diagonal_dominant(s, *_choose_sizes(s))
    kind = TensorType(x.type.shape[:-2], REAL_OF.get(x.type.dtype, x.type.dtype))
    s.emit(name, x, s.b.full(1e-5, kind))


@sampler("least_squares")
def _(s: Scope, name: str) -> None:
    a = _diagonal_dominant(s, *_choose_sizes(s))
    y = s.value(a.type.with_shape((*a.type.shape[:-1], s.choose(*SIZES))))
    kind = TensorType(a.type.shape[:-2], REAL_OF.get(a.type.dtype, a.type.dtype))
    s.emit(name, a, y, s.b.full(1e-5, kind))
