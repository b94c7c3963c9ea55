"""Reductions: dimensions folded into one element each."""

from collections.abc import Callable
from typing import Any

import numpy as np

from shardir.factors import FactorRule, Kind, RuleBuilder
from shardir.ops.check import ARITHMETIC, ORDERED, Domain, Ints, dims_of
from shardir.ops.numerics import NARROW
from shardir.opset import OpSpec, define
from shardir.types import TensorType, dtype_name


def _without(x: TensorType, dims: Ints) -> TensorType:
    return x.with_shape([n for d, n in enumerate(x.shape) if d not in dims])


def _rule(x: TensorType, dims: Ints, reduction: str | None) -> FactorRule:
    builder = RuleBuilder([x.shape], [_without(x, dims).shape])
    kept = [d for d in range(x.rank) if d not in dims]
    for d, size in enumerate(x.shape):
        if d in dims:
            builder.add([d], [None], size, Kind.REDUCE)
        else:
            builder.add([d], [kept.index(d)], size)
    return builder.build(reduction)


def _reduction(
    name: str,
    takes: Domain,
    combine: str,
    numpy: Callable[..., Any],
    vjp: Callable[..., Any],
) -> OpSpec:
    """Declare a reduction whose partial results are combined by `combine`."""

    def type(x: TensorType, *, dims: Ints, result: TensorType | None) -> TensorType:
        takes.check(x)
        return _without(x, dims_of(x, dims))

    def factors(x: TensorType, *, dims: Ints, result: TensorType) -> FactorRule:
        return _rule(x, dims, combine)

    def reference(x: Any, *, dims: Ints, result: TensorType) -> Any:
        wide = x.astype(np.float32) if dtype_name(x.dtype) in NARROW else x
        with np.errstate(all="ignore"):
            return np.asarray(numpy(wide, tuple(dims))).astype(result.numpy)

    return define(name, type=type, factors=factors, reference=reference, vjp=vjp)


def spread(b: Any, y: Any, x: Any, dims: Ints) -> Any:
    """A reduced value repeated along the dimensions that were reduced from `x`."""
    kept = tuple(d for d in range(x.type.rank) if d not in dims)
    return b.broadcast(y, dims=kept, result=x.type.with_dtype(y.type.dtype))


def _sum_vjp(b: Any, g: Any, x: Any, y: Any, *, dims: Ints) -> Any:
    return (spread(b, g, x, dims),)


def _extreme_vjp(b: Any, g: Any, x: Any, y: Any, *, dims: Ints) -> Any:
    """Elements that share the extreme share the cotangent."""
    best = b.eq(x, spread(b, y, x, dims))
    ones = b.convert(best, result=x.type)
    share = b.div(g, b.sum(ones, dims=dims))
    return (b.mul(ones, spread(b, share, x, dims)),)


def _lowest(dtype: np.dtype[Any]) -> Any:
    if dtype == np.bool_:
        return False
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def _highest(dtype: np.dtype[Any]) -> Any:
    if dtype == np.bool_:
        return True
    return np.iinfo(dtype).max if dtype.kind in "iu" else np.inf


def _sum(x: Any, dims: Ints) -> Any:
    return np.logical_or.reduce(x, dims) if x.dtype == np.bool_ else np.sum(x, dims, x.dtype)


def _max(x: Any, dims: Ints) -> Any:
    return np.max(x, dims, initial=_lowest(x.dtype))


def _min(x: Any, dims: Ints) -> Any:
    return np.min(x, dims, initial=_highest(x.dtype))


sum_ = _reduction("sum", ARITHMETIC, "add", _sum, _sum_vjp)
max_ = _reduction("max", ORDERED, "max", _max, _extreme_vjp)
min_ = _reduction("min", ORDERED, "min", _min, _extreme_vjp)
