"""Keys: made from seeds, split into more, and looked into."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardir.frontend.config import config
from shardir.frontend.eager import public
from shardir.frontend.errors import KeyKindError, NumberError, RandomError
from shardir.frontend.locations import point
from shardir.frontend.numpy.axes import shape_of
from shardir.frontend.operands import abstract_of, as_tracer, constant, convert
from shardir.frontend.promotion import KEY, KeyType
from shardir.frontend.trace import current, emit
from shardir.frontend.tracer import Tracer
from shardir.opset import Symbol
from shardir.types import INTEGERS, TensorType

Shape = int | Sequence[int]
IMPLEMENTATION = "threefry2x32"


def scheme() -> Symbol:
    """How counters are made, by the setting `threefry_partitionable`."""
    return Symbol("partitionable" if config.threefry_partitionable else "original")


def keys_of(key: Any) -> tuple[Tracer, bool]:
    """Typed keys, and whether they were given as two 32-bit words each (`PRNGKey`)."""
    tracer = as_tracer(key)
    type = tracer.value.type
    if type.dtype == "key":
        return tracer, False
    if type.dtype == "u32" and type.shape and type.shape[-1] == 2:
        made = emit("bitcast", tracer, result=TensorType(type.shape[:-1], "key"))
        return made, True
    raise _no_key(type)


def _no_key(kind: TensorType) -> RandomError:
    return RandomError(point(f"a random key is wanted, got {kind}; make one with random.key(seed)"))


def single_key(key: Any) -> Tracer:
    """One typed key; raises `RandomError` for an array of them."""
    found, _ = keys_of(key)
    if found.ndim:
        raise RandomError(
            point(
                f"one random key is wanted, got an array of keys of shape {found.shape}; "
                "take one of them, or draw from each with lax.map"
            )
        )
    return found


def _words(key: Tracer) -> Tracer:
    words: Tracer = emit("bitcast", key, result=TensorType((*key.shape, 2), "u32"))
    return words


@public(name="wrap_key_data")
def _wrapped(words: Any) -> Any:
    return keys_of(words)[0]


def wrap_key_data(key_bits_array: Any, *, impl: Any = None, dtype: Any = None) -> Any:
    """Keys from their words: u32[..., 2] to key[...]."""
    _check(impl, dtype)
    return _wrapped(key_bits_array)


@public()
def key_data(keys: Any) -> Any:
    """The words of keys: key[...] to u32[..., 2]."""
    return _words(keys_of(keys)[0])


def key_impl(keys: Any) -> str:
    """The algorithm that keys are for; there is one. Raises `RandomError` for what is no key."""
    kind = abstract_of(keys, "the key of key_impl").type
    if kind.dtype != "key" and (kind.dtype != "u32" or kind.shape[-1:] != (2,)):
        raise _no_key(kind)
    return IMPLEMENTATION


def key_dtype(impl: Any = None) -> KeyType:
    """The element type of random keys for an algorithm; there is one."""
    _check(impl, None)
    return KEY


@public()
def clone(key: Any) -> Any:
    """The same key, which draws the same numbers."""
    return as_tracer(key)


@public(name="PRNGKey")
def _seeded(seed: Any) -> Any:
    seed = as_tracer(seed)
    dtype = seed.value.type.dtype
    if dtype not in INTEGERS or seed.ndim:
        raise KeyKindError(point(f"a seed is an integer, got {seed.value.type}"))
    low = convert(seed, "u32")
    if dtype in ("i64", "u64"):
        wide = convert(seed, "u64")
        half = constant(np.uint64(32))
        high = convert(emit("shift_right_logical", wide, half), "u32")
    else:
        high = constant(np.uint32(0))
    halves = [emit("reshape", half, result=TensorType((1,), "u32")) for half in (high, low)]
    return emit("concatenate", *halves, dim=0)


def PRNGKey(seed: Any, *, impl: Any = None, dtype: Any = None) -> Any:
    """A key as two 32-bit words, u32[2]; `key` makes a typed one.

    Raises `NumberError` for a seed of more than 64 bits, `KeyKindError` for one that is no integer.
    """
    _check(impl, dtype)
    if isinstance(seed, int):
        seed = int(seed)
        if not -(2**63) <= seed < 2**63:
            raise NumberError(
                point(
                    f"the seed {seed} does not fit into 64 bits; take what is left of it, "
                    "as seed % 2**63"
                )
            )
    if type(seed) is int or (isinstance(seed, np.integer) and not config.enable_x64):
        whole = int(seed) & 0xFFFF_FFFF_FFFF_FFFF
        words = np.array([whole >> 32 if config.enable_x64 else 0, whole & 0xFFFF_FFFF], np.uint32)
        if current() is not None:
            return constant(words)
        from shardir.frontend.array import from_numpy

        return from_numpy(words)
    return _seeded(seed)


def _check(impl: Any, dtype: Any) -> None:
    if impl is not None and dtype is not None:
        raise RandomError(point("impl and dtype say the same of a key; give one of them"))
    asked = dtype if impl is None else impl
    if asked is None or isinstance(asked, KeyType):
        return
    if not isinstance(asked, str):
        raise KeyKindError(point(f"the kind of a key is a string, got {asked!r}"))
    if asked not in (IMPLEMENTATION, "fry"):
        raise RandomError(
            point(f"random keys of {asked!r} are unknown; they are for {IMPLEMENTATION!r}")
        )


def key(seed: Any, *, impl: Any = None, dtype: Any = None) -> Any:
    """The key of an integer seed; without 64-bit types only the low 32 bits of the seed count."""
    return wrap_key_data(PRNGKey(seed, impl=impl, dtype=dtype))


@public(static=("num", "scheme"))
def _split(key: Any, num: tuple[int, ...], scheme: str) -> Any:
    found, raw = keys_of(key)
    if found.ndim:
        raise RandomError(
            point(f"split takes one key, got an array of keys of shape {found.shape}")
        )
    made = emit("random_split", found, scheme=Symbol(scheme), result=TensorType(num, "key"))
    return _words(made) if raw else made


def split(key: Any, num: Shape = 2) -> Any:
    """`num` new keys (an integer or a shape) from one."""
    return _split(key, shape_of(num), str(scheme()))


@public()
def fold_in(key: Any, data: Any) -> Any:
    """A new key from a key and an integer."""
    found, raw = keys_of(key)
    if found.ndim:
        raise RandomError(
            point(f"fold_in takes one key, got an array of keys of shape {found.shape}")
        )
    number = as_tracer(data)
    if number.ndim or number.value.type.dtype not in INTEGERS:
        raise RandomError(point(f"fold_in takes an integer, got {number.value.type}"))
    made = emit("random_fold_in", found, convert(number, "u32"))
    return _words(made) if raw else made
