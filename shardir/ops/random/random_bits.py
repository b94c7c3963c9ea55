"""Random bits as functions of keys.

Keys are values; the operations are stateless. `random_bits` and `random_split` take an array of
keys of any shape, whose dimensions come first in the result: each key is processed independently.
An element depends on its key and on its index among the elements of this key, so each shard of the
result is computed locally: `random_bits_at` and `random_split_at` are the per-device operations,
with the start of the shard and the global shape of the elements of one key. `random_hash` is the
hash of pairs of counters, for programs with their own counter layout.

Keys of two words are hashed by threefry. `random_bits` also takes keys of four words, from which it
draws the bits of Philox; a program derives such keys by the other operations.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from shardir.errors import count_noun
from shardir.ir.attributes import Attributes
from shardir.ir.builder import Builder
from shardir.ir.dtypes import KEYS, RBG_KEYS, SMALL_DTYPES
from shardir.ir.key_implementations import THREEFRY
from shardir.ir.operation import OPS, Op, Partitioning, Symbol, Value, define_op
from shardir.ir.types import INTEGERS, UNSIGNED, TensorType
from shardir.op_rules.batching import ShiftDims
from shardir.op_rules.factors import FactorRule, RuleBuilder
from shardir.op_rules.partitioning import LocalOp
from shardir.op_rules.vma import join_varying
from shardir.ops.random import philox, threefry
from shardir.ops.random.threefry import SCHEMES, Array
from shardir.ops.type_checks import format_list, require_result_type

WORDS = tuple(name for name in UNSIGNED if name not in SMALL_DTYPES)
"""The dtypes of random bits."""

_PARTITIONABLE = SCHEMES[0]


@dataclass(frozen=True, slots=True)
class RandomAttributes(Attributes):
    """The attributes of random bits and of split keys: the scheme of their counters."""

    scheme: str = _PARTITIONABLE


@dataclass(frozen=True, slots=True)
class RandomShardAttributes(Attributes):
    """The attributes of a shard: the global shape of the elements of one key, and the scheme."""

    shape: tuple[int, ...]
    scheme: str = _PARTITIONABLE


def _bits_type(
    keys: TensorType, *, result: TensorType | None, attributes: RandomAttributes
) -> TensorType:
    result_type = _bits_result(keys, result)
    words = threefry.num_counters(
        prod(result_type.shape[keys.rank :]), result_type.numpy.itemsize * 8
    )
    _check_scheme(attributes.scheme, words)
    return result_type


def _split_type(
    keys: TensorType, *, result: TensorType | None, attributes: RandomAttributes
) -> TensorType:
    result_type = _split_result(keys, result)
    _check_scheme(attributes.scheme, 2 * prod(result_type.shape[keys.rank :]))
    return result_type


def _bits_at_type(
    keys: TensorType,
    *starts: TensorType,
    result: TensorType | None,
    attributes: RandomShardAttributes,
) -> TensorType:
    result_type = _bits_result(keys, result)
    _check_piece(result_type.with_shape(result_type.shape[keys.rank :]), starts, attributes.shape)
    _check_scheme(
        attributes.scheme,
        threefry.num_counters(prod(attributes.shape), result_type.numpy.itemsize * 8),
    )
    return result_type


def _split_at_type(
    keys: TensorType,
    *starts: TensorType,
    result: TensorType | None,
    attributes: RandomShardAttributes,
) -> TensorType:
    result_type = _split_result(keys, result)
    _check_piece(result_type.with_shape(result_type.shape[keys.rank :]), starts, attributes.shape)
    _check_scheme(attributes.scheme, 2 * prod(attributes.shape))
    return result_type


def _fold_in_type(keys: TensorType, data: TensorType, *, result: TensorType | None) -> TensorType:
    if keys.dtype != "key" or data != keys.with_dtype("u32"):
        raise TypeError(f"takes keys and as many u32, got {keys} and {data}")
    return keys


def _hash_type(
    keys: TensorType, first: TensorType, second: TensorType, *, result: TensorType | None
) -> TensorType:
    if keys.dtype != "key" or not first == second == keys.with_dtype("u32"):
        raise TypeError(f"takes keys and as many pairs of u32, got {keys}, {first} and {second}")
    return keys


def _bits_result(keys: TensorType, result: TensorType | None) -> TensorType:
    result_type = require_result_type(result)
    if result_type.dtype not in WORDS:
        raise TypeError(f"makes {', '.join(WORDS)}, not {result_type.dtype}")
    _check_keys(keys, result_type, KEYS)
    return result_type


def _split_result(keys: TensorType, result: TensorType | None) -> TensorType:
    result_type = require_result_type(result)
    if result_type.dtype != "key":
        raise TypeError(f"makes keys, not {result_type.dtype}")
    _check_keys(keys, result_type)
    return result_type


def _check_keys(
    keys: TensorType, result: TensorType, dtypes: Sequence[str] = (THREEFRY.dtype,)
) -> None:
    if keys.dtype not in dtypes:
        raise TypeError(f"takes keys of {' or '.join(dtypes)}, got {keys}")
    if result.shape[: keys.rank] != keys.shape:
        raise TypeError(f"{result} does not begin with the dimensions of {keys}")


def _check_scheme(scheme: str, words: int) -> None:
    if scheme not in SCHEMES:
        raise TypeError(f"scheme={scheme} is not one of {', '.join(SCHEMES)}")
    if scheme == "original" and words >= 1 << 32:
        raise TypeError(
            f"needs {words} counters, and the original scheme has 32 bits for them; "
            "use scheme=partitionable"
        )


def _check_piece(piece: TensorType, starts: tuple[TensorType, ...], shape: tuple[int, ...]) -> None:
    if not piece.rank == len(starts) == len(shape):
        raise TypeError(
            f"needs a start and a global extent for each dimension of {piece}, got "
            f"{count_noun(len(starts), 'start')} and shape={format_list(shape)}"
        )
    for start in starts:
        if start.rank or start.dtype not in INTEGERS:
            raise TypeError(f"starts are integers of rank 0, got {start}")


def _bits_factors(
    keys: TensorType, *, result: TensorType, attributes: RandomAttributes
) -> FactorRule:
    builder = RuleBuilder([keys.shape], [result.shape])
    for dim, size in enumerate(result.shape):
        builder.add([dim if dim < keys.rank else None], [dim], size)
    return builder.build()


def _fold_in_factors(keys: TensorType, data: TensorType, *, result: TensorType) -> FactorRule:
    return RuleBuilder([keys.shape, data.shape], [result.shape]).add_pointwise(result.shape).build()


def _hash_factors(
    keys: TensorType, first: TensorType, second: TensorType, *, result: TensorType
) -> FactorRule:
    shapes = [keys.shape, first.shape, second.shape]
    return RuleBuilder(shapes, [result.shape]).add_pointwise(result.shape).build()


def _bits(keys: Array, *, result: TensorType, attributes: RandomAttributes) -> Array:
    shape = result.shape[keys.ndim :]
    whole = RandomShardAttributes(shape, attributes.scheme)
    return _bits_at(keys, *(0,) * len(shape), result=result, attributes=whole)


def _bits_at(
    keys: Array,
    *starts: Array | int,
    result: TensorType,
    attributes: RandomShardAttributes,
) -> Array:
    width = result.numpy.itemsize * 8
    shape, scheme = attributes.shape, attributes.scheme
    keys, indices = _keys_and_indices(keys, starts, result, shape)
    if keys.dtype.type is np.void:
        return philox.random_bits(keys, indices, width)
    return threefry.random_bits(keys, indices, prod(shape), width, scheme)


def _split(keys: Array, *, result: TensorType, attributes: RandomAttributes) -> Array:
    shape = result.shape[keys.ndim :]
    whole = RandomShardAttributes(shape, attributes.scheme)
    return _split_at(keys, *(0,) * len(shape), result=result, attributes=whole)


def _split_at(
    keys: Array,
    *starts: Array | int,
    result: TensorType,
    attributes: RandomShardAttributes,
) -> Array:
    shape, scheme = attributes.shape, attributes.scheme
    return threefry.split_key(*_keys_and_indices(keys, starts, result, shape), prod(shape), scheme)


def _keys_and_indices(
    keys: Array, starts: tuple[Array | int, ...], result: TensorType, shape: tuple[int, ...]
) -> tuple[Array, Array]:
    """Return the key of each element of the result (or the only key), and the element's index."""
    piece = result.shape[keys.ndim :]
    indices = threefry.window_indices(shape, [int(start) for start in starts], piece)
    if keys.ndim == 0:
        return keys, indices
    spread = keys.reshape(*keys.shape, *(1,) * len(piece))
    return np.broadcast_to(spread, result.shape), np.broadcast_to(indices, result.shape)


def _fold_in(keys: Array, data: Array, *, result: TensorType) -> Array:
    return threefry.fold_in(keys, data)


def _hash(keys: Array, first: Array, second: Array, *, result: TensorType) -> Array:
    return threefry.join_words(*threefry.hash_pairs(keys, first, second))


def _partition_at(name: str) -> Partitioning:
    """Return the partitioning in which every device computes its own shard from its start."""

    def lower(b: Builder, local: LocalOp, keys: Value, *, attributes: RandomAttributes) -> Value:
        global_result = local.op.result
        starts = [
            local.shard_start(b, global_result, dim)
            for dim in range(keys.type.rank, global_result.type.rank)
        ]
        if None in starts:
            zero = b.full(0, TensorType((), "i32"))
        made: Value = b.emit(
            OPS[name],
            keys,
            *(zero if start is None else start for start in starts),
            result=local.result,
            shape=global_result.type.shape[keys.type.rank :],
            scheme=Symbol(attributes.scheme),
        )
        return made

    return Partitioning(lower)


def is_draw_from_rbg(op: Op) -> bool:
    """Return whether an operation draws bits from a single key of four words.

    In `vmap`, all elements then share the first key of the batch, as in JAX. The batching rule of
    the operation draws from each key instead: it gives the bits of independent operations.
    """
    keys = op.operands[0].type if op.spec is random_bits else None
    return keys is not None and keys.dtype in RBG_KEYS and not keys.shape


random_bits = define_op(
    "random_bits",
    attributes=RandomAttributes,
    type=_bits_type,
    factors=_bits_factors,
    reference=_bits,
    batch=ShiftDims(),
    partition=_partition_at("random_bits_at"),
)
random_split = define_op(
    "random_split",
    attributes=RandomAttributes,
    type=_split_type,
    factors=_bits_factors,
    reference=_split,
    batch=ShiftDims(),
    partition=_partition_at("random_split_at"),
)
random_fold_in = define_op(
    "random_fold_in",
    type=_fold_in_type,
    factors=_fold_in_factors,
    reference=_fold_in,
    elementwise=True,
)
random_hash = define_op(
    "random_hash",
    type=_hash_type,
    factors=_hash_factors,
    reference=_hash,
    elementwise=True,
)
random_bits_at = define_op(
    "random_bits_at",
    attributes=RandomShardAttributes,
    type=_bits_at_type,
    reference=_bits_at,
    vma=join_varying,
    spmd=True,
)
random_split_at = define_op(
    "random_split_at",
    attributes=RandomShardAttributes,
    type=_split_at_type,
    reference=_split_at,
    vma=join_varying,
    spmd=True,
)
