"""Element types of mixed operands: JAX's promotion lattice, with weak Python scalars.

A Python number has a weak type: it takes the type of any array of the same kind, so that `x + 1.0`
keeps the type of `x`. Without `enable_x64` each 64-bit type is replaced by its 32-bit counterpart.
"""

from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Final, final

from shardir.errors import OperationTypeError
from shardir.frontend.config import config
from shardir.frontend.errors import NotAnArrayError
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.ir.dtypes import (
    EXTENSION_DTYPES,
    KEYS,
    SMALL_DTYPES,
    SMALL_FLOATS,
    SMALL_INTEGERS,
    NumpyDType,
)
from shardir.ir.key_implementations import KEY_IMPLEMENTATIONS, THREEFRY, KeyImplementation
from shardir.ir.types import FLOATS, INEXACT, INTEGERS, NUMPY_DTYPES, dtype_name


@final
@dataclass(frozen=True, slots=True, repr=False)
class KeyType:
    """The element type of random keys of an implementation in the public interface."""

    implementation: KeyImplementation

    kind: ClassVar = "V"

    @property
    def name(self) -> str:
        """The name of the element type, such as `key<fry>`."""
        return f"key<{self.implementation.tag}>"

    @property
    def itemsize(self) -> int:
        """The size of a key in bytes."""
        return 4 * self.implementation.num_words

    def __repr__(self) -> str:
        return self.name


_KEY_TYPES = {name: KeyType(each) for name, each in KEY_IMPLEMENTATIONS.items()}
_NAMES_OF_KEY_TYPES = {kind.name: name for name, kind in _KEY_TYPES.items()}
KEY: Final = _KEY_TYPES[THREEFRY.dtype]
DType = NumpyDType | KeyType


def user_dtype(name: str) -> DType:
    """Return the public element type for the IR name `name`: NumPy's, or a `KeyType`."""
    return _KEY_TYPES.get(name) or NUMPY_DTYPES[name]


NARROW_DTYPES = {"f64": "f32", "i64": "i32", "u64": "u32", "c128": "c64"}
_PYTHON_DTYPES = {bool: "bool", int: "i64", float: "f64", complex: "c128"}


def canonical_dtype(name: str) -> str:
    """Return the element type that replaces `name` under the setting `enable_x64`."""
    if name in NARROW_DTYPES and not config.enable_x64:
        return NARROW_DTYPES[name]
    return name


def dtype_of(spec: object) -> str:
    """Return the canonical IR name of the element type that `spec` denotes.

    `spec` is a NumPy type or dtype, a Python type (`float`), a string, a `KeyType`, or an object
    with a `dtype`. Raises `NotAnArrayError` for anything else.
    """
    if isinstance(spec, type) and spec in _PYTHON_DTYPES:
        return canonical_dtype(_PYTHON_DTYPES[spec])
    if isinstance(spec, KeyType):
        return spec.implementation.dtype
    if (key := _NAMES_OF_KEY_TYPES.get(str(spec))) is not None:
        return key
    if isinstance(spec, str) and spec in EXTENSION_DTYPES:
        spec = EXTENSION_DTYPES[spec]
    try:
        return canonical_dtype(dtype_name(spec))
    except (TypeError, ValueError):
        pass
    raise invalid_dtype_error(spec)


def invalid_dtype_error(spec: object) -> NotAnArrayError:
    """Return the error for an object that is not an element type."""
    known = ", ".join(str(t) for name, t in NUMPY_DTYPES.items() if name not in KEYS)
    return NotAnArrayError(
        with_location(f"{brief(spec)} is not an element type; the element types are {known}")
    )


# The direct successors of each type in the promotion lattice. Starred types are weak.
_PROMOTION_STEPS: dict[str, tuple[str, ...]] = {
    "bool": ("i*",),
    "i*": ("u8", "i8", *SMALL_INTEGERS),
    "u8": ("i16", "u16"),
    "u16": ("i32", "u32"),
    "u32": ("i64", "u64"),
    "u64": ("f*",),
    "i8": ("i16",),
    "i16": ("i32",),
    "i32": ("i64",),
    "i64": ("f*",),
    "f*": (*SMALL_FLOATS, "bf16", "f16", "c*"),
    "bf16": ("f32",),
    "f16": ("f32",),
    "f32": ("f64", "c64"),
    "f64": ("c128",),
    "c*": ("c64",),
    "c64": ("c128",),
    "c128": (),
    # Small dtypes promote to no other one.
    **dict.fromkeys(SMALL_DTYPES, ()),
}


@cache
def _promotable_to(node: str) -> frozenset[str]:
    """Return every type to which a type promotes, including itself."""
    return frozenset({node}).union(*(_promotable_to(step) for step in _PROMOTION_STEPS[node]))


@cache
def _least_upper_bound(first: str, second: str) -> str:
    """Return the least type to which both types promote."""
    common = _promotable_to(first) & _promotable_to(second)
    for node in _PROMOTION_STEPS:
        if node in common and common <= _promotable_to(node):
            return node
    names = [_describe_node(each) for each in (first, second)]
    small = next(each for each in (first, second) if each in SMALL_DTYPES)
    raise OperationTypeError(
        with_location(
            f"{' and '.join(names)} have no common element type, because {NUMPY_DTYPES[small]} "
            "is not promoted implicitly; convert an operand, for example with "
            "x.astype('float32')"
        )
    )


def _describe_node(node: str) -> str:
    python = {"i*": "int", "f*": "float", "c*": "complex"}
    return f"a Python {python[node]}" if node in python else str(NUMPY_DTYPES[node])


def _lattice_node(name: str, weak: bool) -> str:
    if not weak or name == "bool":
        return name
    return "i*" if name in INTEGERS else "f*" if name in FLOATS else "c*"


_WEAK_DTYPES = {"i*": "i64", "f*": "f64", "c*": "c128"}


def check_keys_mix(*dtypes: str) -> None:
    """Raise `OperationTypeError` for random keys and elements of another dtype: no conversion
    gives them one dtype."""
    names = list(dict.fromkeys(dtypes))
    if len(names) == 1 or not any(name in KEYS for name in names):
        return
    if all(name in KEYS for name in names):
        raise OperationTypeError(
            with_location(
                f"random keys of {' and '.join(str(_KEY_TYPES[name]) for name in names)} do "
                "not mix; make all keys with one implementation, as in "
                "random.key(seed, impl='rbg')"
            )
        )
    raise OperationTypeError(
        with_location(
            "random keys do not mix with numbers; draw numbers from a key with "
            "shardir.random, or read its words with shardir.random.key_data"
        )
    )


@cache
def join_dtypes(*kinds: tuple[str, bool]) -> tuple[str, bool]:
    """Return the element type of mixed operands, not yet canonical; each operand is (name,
    weak)."""
    if any(name in KEYS for name, _ in kinds):
        check_keys_mix(*(name for name, _ in kinds))
        return kinds[0][0], False
    all_weak = all(weak for _, weak in kinds)
    nodes = [_lattice_node(name, weak and not all_weak) for name, weak in kinds]
    found = nodes[0]
    for node in nodes[1:]:
        found = _least_upper_bound(found, node)
    return _WEAK_DTYPES.get(found, found), all_weak or found in _WEAK_DTYPES


def result_type(*kinds: tuple[str, bool]) -> tuple[str, bool]:
    """Return the element type of mixed operands and whether it is weak; each operand is (name,
    weak).
    """
    name, weak = join_dtypes(*kinds)
    return canonical_dtype(name), weak


def is_wider(stated: str, name: str) -> bool:
    """Return whether `stated`, in which sums of elements of `name` are requested, contains values
    that `name` does not contain: the elements are then converted before they are added."""
    return result_type((name, False), (stated, False))[0] != name


def inexact_dtype(name: str) -> str:
    """Return the floating or complex type in which `name` is computed, by JAX's rule.

    Integers of 64 bits become f64, all narrower ones and bools f32, with `enable_x64` too.
    """
    if name in INEXACT:
        return name
    return canonical_dtype("f64") if name in ("i64", "u64") else "f32"
