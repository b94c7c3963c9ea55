"""Fourier transforms over the last dimensions.

Forward transforms sum x_n exp(-2 pi i k n / N); inverse transforms use the opposite sign and divide
by N, as StableHLO's `fft` does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np

from shardir.errors import count_noun
from shardir.ir.attributes import Attributes
from shardir.ir.builder import Builder
from shardir.ir.operation import Cotangents, Symbol, Value, define_op
from shardir.ir.types import COMPLEX_OF, REAL_OF, NumpyArray, TensorType
from shardir.op_rules.batching import ShiftDims
from shardir.op_rules.factors import FactorKind, FactorRule, RuleBuilder
from shardir.op_rules.tangents import linear_tangent
from shardir.ops.type_checks import DtypeDomain

TRANSFORMS: dict[str, Callable[..., object]] = {
    "fft": np.fft.fftn,
    "ifft": np.fft.ifftn,
    "rfft": np.fft.rfftn,
    "irfft": np.fft.irfftn,
}
_COMPLEX = DtypeDomain("c64 or c128", tuple(REAL_OF))
_REAL = DtypeDomain("f32 or f64", tuple(COMPLEX_OF))


@dataclass(frozen=True, slots=True)
class FourierAttributes(Attributes):
    """The attributes of `fft`."""

    kind: str
    rank: int


def _type(x: TensorType, *, attributes: FourierAttributes, result: TensorType | None) -> TensorType:
    kind, rank = attributes.kind, attributes.rank
    if kind not in TRANSFORMS:
        raise TypeError(f"kind={kind} is not one of {', '.join(TRANSFORMS)}")
    if not isinstance(rank, int) or not 1 <= rank <= 3:
        raise TypeError(f"transforms the last 1 to 3 dimensions, not rank={rank!r} of them")
    if rank > x.rank:
        raise TypeError(
            f"transforms the last {count_noun(rank, 'dimension')}, but {x} has only {x.rank}"
        )
    (_REAL if kind == "rfft" else _COMPLEX).check(x)
    *outer, last = x.shape
    if kind == "rfft":
        return TensorType((*outer, last // 2 + 1 if last else 0), COMPLEX_OF[x.dtype])
    if kind != "irfft":
        return x
    result_type = (
        TensorType((*outer, max(2 * (last - 1), 0)), REAL_OF[x.dtype]) if result is None else result
    )
    fits = (
        result_type.rank == x.rank
        and result_type.shape[:-1] == tuple(outer)
        and result_type.dtype == REAL_OF[x.dtype]
    )
    if not fits or (result_type.shape[-1] // 2 + 1 if result_type.shape[-1] else 0) != last:
        raise TypeError(f"{x} is not the spectrum of {result_type}")
    return result_type


def _factors(x: TensorType, *, attributes: FourierAttributes, result: TensorType) -> FactorRule:
    builder = RuleBuilder([x.shape], [result.shape])
    for d, size in enumerate(x.shape):
        batch = d < x.rank - attributes.rank
        changed = d == x.rank - 1 and size != result.shape[d]
        builder.add(
            [d], [d], size, FactorKind.PASS if batch else FactorKind.REPLICATE, blocked=changed
        )
    return builder.build()


def _reference(x: NumpyArray, *, attributes: FourierAttributes, result: TensorType) -> NumpyArray:
    """Compute in f64 and c128 and round once."""
    kind, rank = attributes.kind, attributes.rank
    if not result.size or not x.size:
        return np.zeros(result.shape, result.numpy)
    axes = tuple(range(x.ndim - rank, x.ndim))
    wide = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
    sizes = result.shape[-rank:] if kind == "irfft" else x.shape[-rank:]
    with np.errstate(all="ignore"):
        return np.asarray(TRANSFORMS[kind](wide, sizes, axes), result.numpy)


def _vjp(b: Builder, g: Value, x: Value, y: Value, *, attributes: FourierAttributes) -> Cotangents:
    """Return the cotangent; the matrix of a transform is symmetric.

    A real transform stores half of the spectrum: in its vjp the missing half has no cotangent, and
    in the vjp of the inverse it counts twice.
    """
    kind, rank = attributes.kind, attributes.rank
    if kind in ("fft", "ifft"):
        return (b.fft(g, kind=kind, rank=rank),)
    if kind == "rfft":
        missing = x.type.shape[-1] - y.type.shape[-1]
        none = (0,) * x.type.rank
        zero = b.full(0, g.type.with_shape(()))
        padded = b.pad(g, zero, low=none, high=(*none[:-1], missing), interior=none)
        return (b.real(b.fft(padded, kind=Symbol("fft"), rank=rank)),)
    spectrum = b.conj(b.fft(g, kind=Symbol("rfft"), rank=rank))
    last, size = x.type.rank - 1, y.type.shape[-1]
    index = b.iota(dim=last, result=x.type.with_dtype("i32"))
    shape = index.type
    alone = b.eq(index, b.full(0, shape))
    if size % 2 == 0:
        alone = b.or_(alone, b.eq(index, b.full(size // 2, shape)))
    share = max(prod(y.type.shape[-rank:]), 1)  # The product is 0 for empty results.
    once, twice = (b.full(n / share, x.type) for n in (1, 2))
    return (b.mul(spectrum, b.select(alone, once, twice)),)


fft = define_op(
    "fft",
    attributes=FourierAttributes,
    type=_type,
    factors=_factors,
    reference=_reference,
    batch=ShiftDims(),
    vjp=_vjp,
    jvp=linear_tangent,
)
"""The discrete Fourier transform over the last `rank` dimensions, one to three.

`kind` is `fft` or `ifft` (complex to complex), `rfft` (real to half of the spectrum: the last
dimension n becomes n // 2 + 1) or its inverse `irfft`. The result type of `irfft` must be stated if
its last dimension is odd.
"""
