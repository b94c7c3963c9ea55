"""PRNG keys: creation from seeds, splits, and conversions from and to words."""

from collections.abc import Sequence

import numpy as np

from shardir.caller_warnings import warn_caller
from shardir.frontend.argument_checks import canonicalize_shape
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array import from_numpy
from shardir.frontend.arrays.array_types import ArrayLike, DTypeLike
from shardir.frontend.arrays.numpy_conversion import abstract_of
from shardir.frontend.config import config
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import KeyImplementationError, NumberRangeError, RandomError
from shardir.frontend.numpy.tracer_helpers.array_annotations import as_result
from shardir.frontend.random.key_derivation import fold_in_keys, keys_of, split_keys, words_of
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, constant, convert
from shardir.frontend.tracing.promotion import KeyType
from shardir.frontend.tracing.trace import current_trace, emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.dtypes import INTEGERS, KEY_WORDS, KEYS
from shardir.ir.key_implementations import (
    IMPLEMENTATIONS_BY_NAME,
    KEY_IMPLEMENTATIONS,
    KeyImplementation,
)
from shardir.ir.operation import Symbol
from shardir.ir.types import TensorType

IntOrShape = int | Sequence[int]


def counter_scheme() -> Symbol:
    """Return the counter scheme that the setting `threefry_partitionable` selects."""
    return Symbol("partitionable" if config.threefry_partitionable else "original")


def as_typed_keys(key: ArrayLike) -> tuple[Tracer, bool]:
    """Return typed keys, and whether keys derived from them are 32-bit words, as `key` is.

    The setting `legacy_prng_key` may refuse words, and `enable_custom_prng` makes all derived keys
    typed.
    """
    tracer = as_tracer(key)
    typed, are_words = _convert_to_keys(tracer)
    if are_words:
        _check_words_allowed(tracer.value.type)
    return typed, are_words and not config.enable_custom_prng


def _check_words_allowed(kind: TensorType) -> None:
    mode = config.legacy_prng_key
    if mode == "allow":
        return
    message = with_location(
        f"the key is {kind}, and the setting legacy_prng_key is {mode!r}; make typed keys with "
        'random.key(seed), or set legacy_prng_key="allow"'
    )
    if mode == "error":
        raise RandomError(message)
    warn_caller(message, UserWarning)


def _convert_to_keys(tracer: Tracer) -> tuple[Tracer, bool]:
    """Return typed keys, and whether they were given as 32-bit words."""
    type = tracer.value.type
    if type.dtype in KEYS:
        return tracer, False
    return keys_of(tracer, _implementation_of_words(type).dtype), True


def _implementation_of_words(kind: TensorType) -> KeyImplementation:
    """Return the default implementation, if an array of this type holds words of its keys."""
    default = _default_implementation()
    if kind.dtype != "u32" or kind.shape[-1:] != (default.num_words,):
        raise RandomError(with_location(_describe_words_mismatch(kind, default)))
    return default


def _describe_words_mismatch(kind: TensorType, default: KeyImplementation) -> str:
    for other in KEY_IMPLEMENTATIONS.values():
        if kind.dtype == "u32" and kind.shape[-1:] == (other.num_words,):
            return (
                f"expected a random key of {default.name!r}, the setting default_prng_impl, got "
                f"{kind}; make a typed key of another implementation with "
                f"random.wrap_key_data(words, impl={other.name!r})"
            )
    return f"expected a random key, got {kind}; make one with random.key(seed)"


def _default_implementation() -> KeyImplementation:
    return IMPLEMENTATIONS_BY_NAME[config.default_prng_impl]


def require_single_key(key: ArrayLike) -> Tracer:
    """Return one typed key; raise `RandomError` for an array of keys."""
    result, _ = as_typed_keys(key)
    if result.ndim:
        raise RandomError(
            with_location(
                f"expected one random key, got an array of keys of shape {result.shape}; "
                "take one of them, or draw from each with lax.map"
            )
        )
    return result


@public(static=("dtype",), name="wrap_key_data")
def _wrap_key_data(words: ArrayLike, dtype: str) -> Tracer:
    tracer = as_tracer(words)
    kind = tracer.value.type
    if kind.dtype == dtype:
        return tracer
    count = KEY_WORDS[dtype]
    if kind.dtype != "u32" or kind.shape[-1:] != (count,):
        raise RandomError(
            with_location(
                f"the words of keys of {KEY_IMPLEMENTATIONS[dtype].name!r} are u32[..., {count}], "
                f"got {kind}; make a key with random.key(seed)"
            )
        )
    return keys_of(tracer, dtype)


@with_argument_errors
def wrap_key_data(
    key_bits_array: ArrayLike, *, impl: str | KeyType | None = None, dtype: DTypeLike | None = None
) -> Tracer:
    """Convert words to keys: u32[..., 2] to key[...], or four words to keys of `rbg` or
    `unsafe_rbg`."""
    return _wrap_key_data(key_bits_array, _find_implementation(impl, dtype).dtype)


@public()
def key_data(keys: ArrayLike) -> Tracer:
    """Convert keys to words: key[...] to u32[..., 2], or to four words for keys of `rbg` and
    `unsafe_rbg`."""
    return words_of(as_typed_keys(keys)[0])


@with_argument_errors
def key_impl(keys: ArrayLike) -> str:
    """Return the name of the implementation of keys; raise `RandomError` for other arrays."""
    kind = abstract_of(keys, "the key of key_impl").type
    known = KEY_IMPLEMENTATIONS.get(kind.dtype)
    return (known or _implementation_of_words(kind)).name


@with_argument_errors
def key_dtype(impl_spec: str | KeyType | None = None) -> KeyType:
    """Return the element type of keys of an implementation, by default of that of the setting
    `default_prng_impl`."""
    return KeyType(_find_implementation(impl_spec, None))


@public()
def clone(key: ArrayLike) -> Tracer:
    """Return the same key, which generates the same numbers."""
    return as_tracer(key)


@public(static=("offset",), name="PRNGKey")
def _seed_key(seed: ArrayLike, offset: int) -> Tracer:
    seed = as_tracer(seed)
    dtype = seed.value.type.dtype
    if dtype not in INTEGERS or seed.ndim:
        raise KeyImplementationError(with_location(f"a seed is an integer, got {seed.value.type}"))
    if offset:
        added = constant(np.array(offset, np.int64).astype(seed.value.type.numpy))
        seed = emit("add", seed, added)
    low = convert(seed, "u32")
    if dtype in ("i64", "u64"):
        wide = convert(seed, "u64")
        half = constant(np.uint64(32))
        high = convert(emit("shift_right_logical", wide, half), "u32")
    else:
        high = constant(np.uint32(0))
    halves = [emit("reshape", half, result=TensorType((1,), "u32")) for half in (high, low)]
    return emit("concatenate", *halves, dim=0)


@with_argument_errors
def PRNGKey(
    seed: ArrayLike, *, impl: str | KeyType | None = None, dtype: DTypeLike | None = None
) -> Tracer:
    """Return a key as 32-bit words, u32[2] for `threefry2x32`; `key` returns a typed key.

    With the setting `enable_custom_prng`, return a typed key, too.
    Raise `NumberRangeError` for a seed of more than 64 bits, and `KeyImplementationError` for a
    seed that is not an integer.
    """
    words, kind = _seed_words(seed, _find_implementation(impl, dtype))
    return _wrap_key_data(words, kind.dtype) if config.enable_custom_prng else words


def _seed_words(seed: ArrayLike, kind: KeyImplementation) -> tuple[Tracer, KeyImplementation]:
    """Return the words of the key of a seed; four words are two words, repeated."""
    words = _seed_pair(seed)
    return (_repeat_words(words) if kind.num_words == 4 else words), kind


@public(name="PRNGKey")
def _repeat_words(words: ArrayLike) -> Tracer:
    pair = as_tracer(words)
    repeated: Tracer = emit("concatenate", pair, pair, dim=0)
    return repeated


def _seed_pair(seed: ArrayLike) -> Tracer:
    if isinstance(seed, int):
        seed = int(seed)
        if not -(2**63) <= seed < 2**63:
            raise NumberRangeError(
                with_location(
                    f"the seed {seed} does not fit into 64 bits; take the remainder, "
                    "as seed % 2**63"
                )
            )
    if type(seed) is int or (isinstance(seed, np.integer) and not config.enable_x64):
        unsigned = (int(seed) + config.random_seed_offset) & 0xFFFF_FFFF_FFFF_FFFF
        words = np.array(
            [unsigned >> 32 if config.enable_x64 else 0, unsigned & 0xFFFF_FFFF], np.uint32
        )
        if current_trace() is not None:
            return constant(words)
        return as_result(from_numpy(words))
    return _seed_key(seed, config.random_seed_offset)


def _find_implementation(impl: object, dtype: DTypeLike | None) -> KeyImplementation:
    """Return the implementation that an argument names, or the default."""
    if impl is not None and dtype is not None:
        raise RandomError(with_location("impl and dtype have the same meaning; give one of them"))
    requested = dtype if impl is None else impl
    if requested is None:
        return _default_implementation()
    if isinstance(requested, KeyType):
        return requested.implementation
    if not isinstance(requested, str):
        raise KeyImplementationError(
            with_location(f"the implementation of a key is a string, got {requested!r}")
        )
    if requested not in IMPLEMENTATIONS_BY_NAME:
        *first, last = map(repr, IMPLEMENTATIONS_BY_NAME)
        raise RandomError(
            with_location(
                f"random keys of {requested!r} are not supported; the implementations are "
                f"{', '.join(first)} and {last}, as in random.key(seed, impl={last})"
            )
        )
    return IMPLEMENTATIONS_BY_NAME[requested]


@with_argument_errors
def key(
    seed: ArrayLike, *, impl: str | KeyType | None = None, dtype: DTypeLike | None = None
) -> Tracer:
    """Return the key of an integer seed; without 64-bit types only the low 32 bits of the seed
    count.
    """
    words, kind = _seed_words(seed, _find_implementation(impl, dtype))
    return _wrap_key_data(words, kind.dtype)


@public(static=("num", "scheme"))
def _split(key: ArrayLike, num: tuple[int, ...], scheme: str) -> Tracer:
    found, raw = as_typed_keys(key)
    if found.ndim:
        raise RandomError(
            with_location(f"split takes one key, got an array of keys of shape {found.shape}")
        )
    result = split_keys(found, num, scheme)
    return words_of(result) if raw else result


@with_argument_errors
def split(key: ArrayLike, num: IntOrShape = 2) -> Tracer:
    """Return `num` new keys (an integer or a shape), derived from one key."""
    return _split(key, canonicalize_shape(num), str(counter_scheme()))


@public()
def _fold_in(key: ArrayLike, data: ArrayLike) -> Tracer:
    found, raw = as_typed_keys(key)
    if found.ndim:
        raise RandomError(
            with_location(f"fold_in takes one key, got an array of keys of shape {found.shape}")
        )
    number = as_tracer(data)
    if number.ndim or number.value.type.dtype not in INTEGERS:
        raise RandomError(with_location(f"fold_in takes an integer, got {number.value.type}"))
    result = fold_in_keys(found, convert(number, "u32"))
    return words_of(result) if raw else result


@with_argument_errors
def fold_in(key: ArrayLike, data: ArrayLike) -> Tracer:
    """Return a new key, derived from a key and an integer of 32 bits."""
    if type(data) is int:
        if not -(2**31) <= data < 2**32:
            raise NumberRangeError(
                with_location(
                    f"fold_in takes an integer of 32 bits, got {data}; take the remainder, "
                    "as data % 2**32"
                )
            )
        data = np.uint32(data % 2**32)
    return _fold_in(key, data)
