"""PRNG keys: creation from seeds, splits, and conversions from and to words."""

import warnings
from collections.abc import Sequence

import numpy as np

from shardir.frontend.argument_checks import canonicalize_shape
from shardir.frontend.arrays.array import from_numpy
from shardir.frontend.arrays.array_types import ArrayLike, DTypeLike
from shardir.frontend.arrays.numpy_conversion import abstract_of
from shardir.frontend.config import config
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import KeyImplementationError, NumberRangeError, RandomError
from shardir.frontend.numpy.tracer_helpers.array_annotations import as_result
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, constant, convert
from shardir.frontend.tracing.promotion import KEY, KeyType
from shardir.frontend.tracing.trace import current_trace, emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.operation import Symbol
from shardir.ir.types import INTEGERS, TensorType

IntOrShape = int | Sequence[int]
PRNG_IMPLEMENTATION = "threefry2x32"


def counter_scheme() -> Symbol:
    """Return the counter scheme that the setting `threefry_partitionable` selects."""
    return Symbol("partitionable" if config.threefry_partitionable else "original")


def as_typed_keys(key: ArrayLike) -> tuple[Tracer, bool]:
    """Return typed keys, and whether keys derived from them are two 32-bit words each, as `key` is.

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
    warnings.warn(message, UserWarning, stacklevel=2)


def _convert_to_keys(tracer: Tracer) -> tuple[Tracer, bool]:
    """Return typed keys, and whether they were given as two 32-bit words each."""
    type = tracer.value.type
    if type.dtype == "key":
        return tracer, False
    if type.dtype == "u32" and type.shape and type.shape[-1] == 2:
        typed = emit("bitcast", tracer, result=TensorType(type.shape[:-1], "key"))
        return typed, True
    raise _not_a_key_error(type)


def _not_a_key_error(kind: TensorType) -> RandomError:
    return RandomError(
        with_location(f"expected a random key, got {kind}; make one with random.key(seed)")
    )


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


def _key_words(key: Tracer) -> Tracer:
    words: Tracer = emit("bitcast", key, result=TensorType((*key.shape, 2), "u32"))
    return words


@public(name="wrap_key_data")
def _wrap_key_data(words: ArrayLike) -> Tracer:
    return _convert_to_keys(as_tracer(words))[0]


def wrap_key_data(
    key_bits_array: ArrayLike, *, impl: str | KeyType | None = None, dtype: DTypeLike | None = None
) -> Tracer:
    """Convert words to keys: u32[..., 2] to key[...]."""
    _check_implementation(impl, dtype)
    return _wrap_key_data(key_bits_array)


@public()
def key_data(keys: ArrayLike) -> Tracer:
    """Convert keys to words: key[...] to u32[..., 2]."""
    return _key_words(as_typed_keys(keys)[0])


def key_impl(keys: ArrayLike) -> str:
    """Return the name of the PRNG algorithm of keys; raise `RandomError` for other arrays."""
    kind = abstract_of(keys, "the key of key_impl").type
    if kind.dtype != "key" and (kind.dtype != "u32" or kind.shape[-1:] != (2,)):
        raise _not_a_key_error(kind)
    return PRNG_IMPLEMENTATION


def key_dtype(impl: str | KeyType | None = None) -> KeyType:
    """Return the element type of keys of a PRNG algorithm, of which there is one."""
    _check_implementation(impl, None)
    return KEY


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


def PRNGKey(
    seed: ArrayLike, *, impl: str | KeyType | None = None, dtype: DTypeLike | None = None
) -> Tracer:
    """Return a key as two 32-bit words, u32[2]; `key` returns a typed key.

    With the setting `enable_custom_prng`, return a typed key, too.
    Raise `NumberRangeError` for a seed of more than 64 bits, and `KeyImplementationError` for a
    seed that is not an integer.
    """
    _check_implementation(impl, dtype)
    words = _seed_words(seed)
    return wrap_key_data(words) if config.enable_custom_prng else words


def _seed_words(seed: ArrayLike) -> Tracer:
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


def _check_implementation(impl: object, dtype: DTypeLike | None) -> None:
    if impl is not None and dtype is not None:
        raise RandomError(with_location("impl and dtype have the same meaning; give one of them"))
    requested = dtype if impl is None else impl
    if requested is None or isinstance(requested, KeyType):
        return
    if not isinstance(requested, str):
        raise KeyImplementationError(
            with_location(f"the kind of a key is a string, got {requested!r}")
        )
    if requested not in (PRNG_IMPLEMENTATION, "fry"):
        raise RandomError(
            with_location(
                f"random keys of {requested!r} are not supported; make keys of "
                f"{PRNG_IMPLEMENTATION!r}, the default: random.key(seed)"
            )
        )


def key(
    seed: ArrayLike, *, impl: str | KeyType | None = None, dtype: DTypeLike | None = None
) -> Tracer:
    """Return the key of an integer seed; without 64-bit types only the low 32 bits of the seed
    count.
    """
    _check_implementation(impl, dtype)
    return wrap_key_data(_seed_words(seed))


@public(static=("num", "scheme"))
def _split(key: ArrayLike, num: tuple[int, ...], scheme: str) -> Tracer:
    found, raw = as_typed_keys(key)
    if found.ndim:
        raise RandomError(
            with_location(f"split takes one key, got an array of keys of shape {found.shape}")
        )
    result = emit("random_split", found, scheme=Symbol(scheme), result=TensorType(num, "key"))
    return _key_words(result) if raw else result


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
    result = emit("random_fold_in", found, convert(number, "u32"))
    return _key_words(result) if raw else result


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
