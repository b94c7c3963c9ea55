"""Keys that are derived from keys, for each implementation of random keys.

Arrays of keys are processed as nested calls of `vmap` process single keys: keys of `threefry2x32`
and `rbg` are independent, and keys of `unsafe_rbg` share the first key, because they are derived
from random bits.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import prod

import numpy as np

from shardir.frontend.tracing.operands import broadcast, broadcast_shapes, constant, convert
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.dtypes import KEY_WORDS, RBG_KEYS, UNSIGNED_BY_BITS
from shardir.ir.key_implementations import RBG, THREEFRY, UNSAFE_RBG
from shardir.ir.operation import Symbol
from shardir.ir.types import TensorType

_DRAWS_PER_KEY = 10
"""Rows of random words of `unsafe_rbg` of which one is a new key."""


_DRAWS_ARE_INDEPENDENT: ContextVar[bool] = ContextVar("draws_are_independent", default=False)


@contextmanager
def independent_draws() -> Iterator[None]:
    """Let each key of four words draw its own bits, also inside of `vmap`.

    An operation on an array of keys draws from each of them. Only an operation on a single key
    shares its key in a batch.
    """
    token = _DRAWS_ARE_INDEPENDENT.set(True)
    try:
        yield
    finally:
        _DRAWS_ARE_INDEPENDENT.reset(token)


def words_of(keys: Tracer) -> Tracer:
    """Return the words of keys, u32[..., n]."""
    kind = keys.value.type
    words: Tracer = emit(
        "bitcast", keys, result=TensorType((*kind.shape, KEY_WORDS[kind.dtype]), "u32")
    )
    return words


def keys_of(words: Tracer, dtype: str) -> Tracer:
    """Return the keys that have the words u32[..., n]."""
    keys: Tracer = emit("bitcast", words, result=TensorType(words.shape[:-1], dtype))
    return keys


def split_keys(keys: Tracer, shape: tuple[int, ...], scheme: str) -> Tracer:
    """Return `shape` new keys for each key, in the last dimensions."""
    dtype = keys.value.type.dtype
    if dtype == UNSAFE_RBG.dtype:
        rows = (*keys.shape, prod(shape), _DRAWS_PER_KEY, 4)
        words = _slice_row(draw_from_rbg(keys, rows[keys.ndim :], 32), 0)
        return keys_of(_reshape(words, (*keys.shape, *shape, 4)), dtype)
    if dtype != RBG.dtype:
        result = TensorType((*keys.shape, *shape), dtype)
        made: Tracer = emit("random_split", keys, scheme=Symbol(scheme), result=result)
        return made
    halves = split_keys(_halves_of(keys), shape, scheme)
    order = (*range(keys.ndim), *range(keys.ndim + 1, halves.ndim), keys.ndim)
    moved = emit("transpose", halves, perm=order)
    return keys_of(_reshape(words_of(moved), (*keys.shape, *shape, 4)), dtype)


def fold_in_keys(keys: Tracer, data: Tracer) -> Tracer:
    """Return a new key for each key and integer u32, whose shapes are broadcast."""
    dtype = keys.value.type.dtype
    shape = broadcast_shapes(keys.shape, data.shape)
    if dtype == UNSAFE_RBG.dtype:
        seeds = keys_of(_seed_words(data), dtype)
        drawn = draw_from_rbg(seeds, (_DRAWS_PER_KEY, 4), 32)
        words = (
            broadcast(x, (*shape, 4))
            for x in (words_of(keys), _slice_row(drawn, _DRAWS_PER_KEY - 1))
        )
        return keys_of(emit("xor", *words), dtype)
    keys, data = broadcast(keys, shape), broadcast(data, shape)
    if dtype != RBG.dtype:
        made: Tracer = emit("random_fold_in", keys, data)
        return made
    both = broadcast(_reshape(data, (*shape, 1)), (*shape, 2))
    halves = words_of(emit("random_fold_in", _halves_of(keys), both))
    return keys_of(_reshape(halves, (*shape, 4)), dtype)


def draw_from_rbg(keys: Tracer, shape: tuple[int, ...], width: int) -> Tracer:
    """Return random bits of `shape` for each key of four words; all share the first key, unless
    draws are independent."""
    rank, dtype = keys.ndim, UNSIGNED_BY_BITS[width]
    if _DRAWS_ARE_INDEPENDENT.get():
        several = keys if rank else _reshape(keys, (1,))
        kind = TensorType((*several.shape, *shape), dtype)
        return _reshape(emit("random_bits", several, result=kind), (*keys.shape, *shape))
    if rank:
        one = TensorType((1,) * rank, keys.value.type.dtype)
        first = emit("slice", keys, starts=(0,) * rank, strides=(1,) * rank, result=one)
        keys, shape = _reshape(first, ()), (*keys.shape, *shape)
    drawn: Tracer = emit("random_bits", keys, result=TensorType(shape, dtype))
    return drawn


def is_rbg(keys: Tracer) -> bool:
    """Return whether keys have four words."""
    return keys.value.type.dtype in RBG_KEYS


def _halves_of(keys: Tracer) -> Tracer:
    """Return each key of four words as two keys of threefry."""
    return keys_of(_reshape(words_of(keys), (*keys.shape, 2, 2)), THREEFRY.dtype)


def _seed_words(data: Tracer) -> Tracer:
    """Return the words of the keys whose seeds are integers of 32 bits."""
    low = _reshape(convert(data, "u32"), (*data.shape, 1))
    high = broadcast(constant(np.uint32(0)), low.shape)
    words: Tracer = emit("concatenate", high, low, high, low, dim=data.ndim)
    return words


def _slice_row(rows: Tracer, row: int) -> Tracer:
    """Return one row of the last dimension but one."""
    kind, rank = rows.value.type, rows.ndim
    starts = tuple(row if d == rank - 2 else 0 for d in range(rank))
    shape = (*kind.shape[:-2], 1, kind.shape[-1])
    part = emit("slice", rows, starts=starts, strides=(1,) * rank, result=kind.with_shape(shape))
    return _reshape(part, (*kind.shape[:-2], kind.shape[-1]))


def _reshape(array: Tracer, shape: tuple[int, ...]) -> Tracer:
    if array.shape == shape:
        return array
    result: Tracer = emit("reshape", array, result=array.value.type.with_shape(shape))
    return result
