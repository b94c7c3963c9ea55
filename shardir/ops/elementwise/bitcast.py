"""Bitcasts: the bits of elements reinterpreted as another element type."""

import numpy as np

from shardir.ir.dtypes import KEY_WORDS, KEYS
from shardir.ir.key_implementations import join_words, split_keys
from shardir.ir.operation import define_op
from shardir.ir.types import NumpyArray, TensorType
from shardir.op_rules.batching import ShiftDims
from shardir.op_rules.factors import FactorKind, FactorRule, RuleBuilder
from shardir.ops.elementwise.elementwise import zero_vjp
from shardir.ops.elementwise.packed_bitcast import bitcast_shape, is_packed_bitcast
from shardir.ops.type_checks import require_result_type


def _type(x: TensorType, *, result: TensorType | None) -> TensorType:
    to = require_result_type(result)
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
    for key, other in ((x.dtype, to.dtype), (to.dtype, x.dtype)):
        if key in KEYS and other != "u32":
            raise TypeError(
                f"reinterprets a key only as u32[..., {KEY_WORDS[key]}], not {x} as {to}"
            )
    if bitcast_shape(x.shape, x.dtype, to.dtype) != to.shape:
        raise TypeError(
            f"cannot reinterpret {x} as {to}; another width adds or removes a last dimension"
        )
    if is_packed_bitcast(x.dtype, to.dtype):
        raise TypeError(
            f"cannot reinterpret {x} as {to}: an array stores each of these elements in a byte "
            "of its own; shift and mask them, as lax.bitcast_convert_type does"
        )
    return to


def _factors(x: TensorType, *, result: TensorType) -> FactorRule:
    """Return a pointwise rule in which the dimension of element parts needs replication."""
    builder = RuleBuilder([x.shape], [result.shape])
    for d in range(min(x.rank, result.rank)):
        builder.add([d], [d], x.shape[d])
    if x.rank < result.rank:
        builder.add([None], [x.rank], result.shape[-1], FactorKind.REPLICATE)
    elif result.rank < x.rank:
        builder.add([result.rank], [None], x.shape[-1], FactorKind.REPLICATE)
    return builder.build()


def _reference(x: NumpyArray, *, result: TensorType) -> NumpyArray:
    if result.dtype in KEYS:
        return x if result.shape == x.shape else join_words(x, result.dtype)
    if x.dtype == np.uint64 and result.dtype == "u32":
        return split_keys(x, "key")
    x = np.asarray(x, order="C")  # In contrast to ascontiguousarray, asarray keeps rank 0.
    if result.rank > x.ndim:
        return x[..., None].view(result.numpy)
    return x.view(result.numpy).reshape(result.shape)


bitcast = define_op(
    "bitcast",
    type=_type,
    factors=_factors,
    reference=_reference,
    batch=ShiftDims(),
    vjp=zero_vjp,
    arithmetic=None,
)
"""The same bits as another element type.

A narrower element type adds a last dimension of the parts, lowest first; a wider one removes it. A
key corresponds to its two words, u32[..., 2], highest first, or to its four words, u32[..., 4].
"""
