"""Random bits as functions of keys.

Keys are values like any other; nothing here has a state. An element of the result depends on the
key and on its own index in the whole result, so that a piece of the result is made where it is
needed: `random_bits_at` and `random_split_at` are what a device of a partitioned program runs,
with the start of its piece and the shape of the whole.
"""

from math import prod
from typing import Any

from shardir import threefry
from shardir.factors import FactorRule, RuleBuilder
from shardir.ops.check import show, stated
from shardir.opset import OPS, Symbol, define
from shardir.partitioning import Local, Partitioning
from shardir.threefry import SCHEMES, Array
from shardir.types import INTEGERS, UNSIGNED, TensorType

_PARTITIONABLE = SCHEMES[0]


def _bits_type(
    key: TensorType, *, result: TensorType | None, scheme: str = _PARTITIONABLE
) -> TensorType:
    made = _bits_result(key, result)
    _check_scheme(scheme, threefry.counters(made.size, made.numpy.itemsize * 8))
    return made


def _split_type(
    key: TensorType, *, result: TensorType | None, scheme: str = _PARTITIONABLE
) -> TensorType:
    made = _split_result(key, result)
    _check_scheme(scheme, 2 * made.size)
    return made


def _bits_at_type(
    key: TensorType,
    *starts: TensorType,
    result: TensorType | None,
    shape: tuple[int, ...],
    scheme: str = _PARTITIONABLE,
) -> TensorType:
    made = _bits_result(key, result)
    _check_piece(made, starts, shape)
    _check_scheme(scheme, threefry.counters(prod(shape), made.numpy.itemsize * 8))
    return made


def _split_at_type(
    key: TensorType,
    *starts: TensorType,
    result: TensorType | None,
    shape: tuple[int, ...],
    scheme: str = _PARTITIONABLE,
) -> TensorType:
    made = _split_result(key, result)
    _check_piece(made, starts, shape)
    _check_scheme(scheme, 2 * prod(shape))
    return made


def _fold_in_type(keys: TensorType, data: TensorType, *, result: TensorType | None) -> TensorType:
    if keys.dtype != "key" or data != keys.with_dtype("u32"):
        raise TypeError(f"takes keys and as many u32, got {keys} and {data}")
    return keys


def _bits_result(key: TensorType, result: TensorType | None) -> TensorType:
    _check_key(key)
    made = stated(result)
    if made.dtype not in UNSIGNED:
        raise TypeError(f"makes {', '.join(UNSIGNED)}, not {made.dtype}")
    return made


def _split_result(key: TensorType, result: TensorType | None) -> TensorType:
    _check_key(key)
    return stated(result, key)


def _check_key(key: TensorType) -> None:
    if key != TensorType((), "key"):
        raise TypeError(f"takes one key, got {key}")


def _check_scheme(scheme: str, words: int) -> None:
    if scheme not in SCHEMES:
        raise TypeError(f"scheme={scheme} is none of {', '.join(SCHEMES)}")
    if scheme == "original" and words >= 1 << 32:
        raise TypeError(
            f"needs {words} counters, and the original scheme has 32 bits for them; "
            "use scheme=partitionable"
        )


def _check_piece(piece: TensorType, starts: tuple[TensorType, ...], shape: tuple[int, ...]) -> None:
    if not piece.rank == len(starts) == len(shape):
        raise TypeError(
            f"needs a start and an extent of the whole for each dimension of {piece}, got "
            f"{len(starts)} starts and shape={show(shape)}"
        )
    for start in starts:
        if start.rank or start.dtype not in INTEGERS:
            raise TypeError(f"starts are integers of rank 0, got {start}")


def _every_dim(key: TensorType, *, result: TensorType, scheme: str = _PARTITIONABLE) -> FactorRule:
    return RuleBuilder([key.shape], [result.shape]).add_pointwise(result.shape).build()


def _fold_in_factors(keys: TensorType, data: TensorType, *, result: TensorType) -> FactorRule:
    return RuleBuilder([keys.shape, data.shape], [result.shape]).add_pointwise(result.shape).build()


def _bits(key: Array, *, result: TensorType, scheme: str = _PARTITIONABLE) -> Array:
    return _bits_at(key, *(0,) * result.rank, result=result, shape=result.shape, scheme=scheme)


def _bits_at(
    key: Array,
    *starts: Array | int,
    result: TensorType,
    shape: tuple[int, ...],
    scheme: str = _PARTITIONABLE,
) -> Array:
    indices = threefry.flat_indices(shape, [int(start) for start in starts], result.shape)
    width = result.numpy.itemsize * 8
    return threefry.bits(key, indices, prod(shape), width, scheme)


def _split(key: Array, *, result: TensorType, scheme: str = _PARTITIONABLE) -> Array:
    return _split_at(key, *(0,) * result.rank, result=result, shape=result.shape, scheme=scheme)


def _split_at(
    key: Array,
    *starts: Array | int,
    result: TensorType,
    shape: tuple[int, ...],
    scheme: str = _PARTITIONABLE,
) -> Array:
    indices = threefry.flat_indices(shape, [int(start) for start in starts], result.shape)
    return threefry.split(key, indices, prod(shape), scheme)


def _fold_in(keys: Array, data: Array, *, result: TensorType) -> Array:
    return threefry.fold_in(keys, data)


def _lower_to(name: str) -> Partitioning:
    """Every device makes its own piece, from where it starts in the whole."""

    def lower(b: Any, local: Local, key: Any, *, scheme: str = _PARTITIONABLE) -> Any:
        whole = local.op.result
        starts = [local.start(b, whole, dim) for dim in range(whole.type.rank)]
        zero = b.full(0, TensorType((), "i32")) if None in starts else None
        return b.emit(
            OPS[name],
            key,
            *(zero if start is None else start for start in starts),
            result=local.result,
            shape=whole.type.shape,
            scheme=Symbol(scheme),
        )

    return Partitioning(lower)


random_bits = define(
    "random_bits",
    type=_bits_type,
    factors=_every_dim,
    reference=_bits,
    partition=_lower_to("random_bits_at"),
)
random_split = define(
    "random_split",
    type=_split_type,
    factors=_every_dim,
    reference=_split,
    partition=_lower_to("random_split_at"),
)
random_fold_in = define(
    "random_fold_in",
    type=_fold_in_type,
    factors=_fold_in_factors,
    reference=_fold_in,
    elementwise=True,
)
random_bits_at = define("random_bits_at", type=_bits_at_type, reference=_bits_at, spmd=True)
random_split_at = define("random_split_at", type=_split_at_type, reference=_split_at, spmd=True)
