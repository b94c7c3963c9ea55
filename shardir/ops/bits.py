"""Bitcasts: the bits of elements reinterpreted as another element type."""

from typing import Any

import numpy as np

from shardir.batching import further
from shardir.factors import FactorRule, Kind, RuleBuilder
from shardir.ops.check import stated
from shardir.ops.elementwise import flat
from shardir.opset import define
from shardir.types import TensorType


def _type(x: TensorType, *, result: TensorType | None) -> TensorType:
    to = stated(result)
    if x == to:
        return to
    for type in (x, to):
        if type.dtype == "bool" or type.dtype in ("c64", "c128"):
            raise TypeError(f"cannot reinterpret the bits of {type}; it takes integers and floats")
    if (x.dtype, to.dtype) == ("u64", "u32"):
        raise TypeError(
            f"cannot reinterpret {x} as {to}, because a key is stored as u64 but has its words in "
            "another order; bitcast it to i64 first"
        )
    if "key" in (x.dtype, to.dtype) and {x.dtype, to.dtype} != {"key", "u32"}:
        raise TypeError(f"reinterprets a key only as u32[..., 2], not {x} as {to}")
    if _seen(x, to.dtype) != to.shape:
        raise TypeError(
            f"cannot reinterpret {x} as {to}; another width adds or removes a last dimension"
        )
    return to


def _seen(x: TensorType, dtype: str) -> tuple[int, ...] | None:
    """Return the shape of `x` as another element type, or `None` if there is none."""
    old, new = x.numpy.itemsize, TensorType((), dtype).numpy.itemsize
    if old == new:
        return x.shape
    if old > new:
        return (*x.shape, old // new)
    return x.shape[:-1] if x.shape[-1:] == (new // old,) else None


def _factors(x: TensorType, *, result: TensorType) -> FactorRule:
    """Return a pointwise rule in which the dimension of element parts needs replication."""
    builder = RuleBuilder([x.shape], [result.shape])
    for d in range(min(x.rank, result.rank)):
        builder.add([d], [d], x.shape[d])
    if x.rank < result.rank:
        builder.add([None], [x.rank], result.shape[-1], Kind.REPLICATE)
    elif result.rank < x.rank:
        builder.add([result.rank], [None], x.shape[-1], Kind.REPLICATE)
    return builder.build()


def _reference(x: Any, *, result: TensorType) -> Any:
    x = np.asarray(x, order="C")  # In contrast to ascontiguousarray, asarray keeps rank 0.
    if result.rank > x.ndim:
        parts = x[..., None].view(result.numpy)
        is_key = x.dtype == np.uint64 and result.dtype == "u32"
        return parts[..., ::-1] if is_key else parts
    if result.dtype == "key":
        x = np.ascontiguousarray(x[..., ::-1])
    return x.view(result.numpy).reshape(result.shape)


bitcast = define(
    "bitcast",
    type=_type,
    factors=_factors,
    reference=_reference,
    batch=further(),
    vjp=flat,
)
"""The same bits as another element type.

A narrower element type adds a last dimension of the parts, lowest first; a wider one removes it. A
key corresponds to its two words, u32[..., 2], highest first.
"""
