"""Element types of mixed operands: JAX's promotion lattice, with weak Python scalars.

A Python number has a weak type: it takes the type of any array of the same kind, so that `x + 1.0`
keeps the type of `x`. Without `enable_x64` each 64-bit type is replaced by its 32-bit counterpart.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, Final, final

import ml_dtypes
import numpy as np

from shardir.errors import OperationTypeError
from shardir.frontend.config import config
from shardir.frontend.errors import NotAnArrayError
from shardir.frontend.locations import point
from shardir.types import FLOATS, INEXACT, INTEGERS, NUMPY_DTYPES, TensorType, dtype_name


@final
class KeyType:
    """The element type of random keys in the public interface; `key` in the IR."""

    __slots__ = ()

    name: Final = "key<fry>"
    kind: Final = "V"
    itemsize: Final = 8

    def __repr__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyType)

    def __hash__(self) -> int:
        return hash(self.name)


KEY: Final = KeyType()
DType = np.dtype[Any] | KeyType


def user_dtype(name: str) -> DType:
    """Return the public element type for the IR name `name`: NumPy's, or `KEY`."""
    return KEY if name == "key" else NUMPY_DTYPES[name]


NARROW = {"f64": "f32", "i64": "i32", "u64": "u32", "c128": "c64"}
_PYTHON = {bool: "bool", int: "i64", float: "f64", complex: "c128"}


def canonical(name: str) -> str:
    """Return the element type that replaces `name` under the setting `enable_x64`."""
    if name in NARROW and not config.enable_x64:
        return NARROW[name]
    return name


def dtype_of(spec: Any) -> str:
    """Return the canonical IR name of the element type that `spec` denotes.

    `spec` is a NumPy type or dtype, a Python type (`float`), a string, `KEY`, or an object with a
    `dtype`. Raises `NotAnArrayError` for anything else.
    """
    if isinstance(spec, type) and spec in _PYTHON:
        return canonical(_PYTHON[spec])
    if isinstance(spec, KeyType) or str(spec) == str(KEY):
        return "key"
    if isinstance(spec, str) and spec == "bfloat16":
        spec = ml_dtypes.bfloat16
    try:
        return canonical(dtype_name(spec))
    except (TypeError, ValueError):
        pass
    raise no_element_type(spec)


def no_element_type(spec: object) -> NotAnArrayError:
    """Return the error for an object that is no element type."""
    from shardir.frontend.quoting import brief  # quoting imports arrays, which import this module

    known = ", ".join(str(t) for name, t in NUMPY_DTYPES.items() if name != "key")
    return NotAnArrayError(
        point(f"{brief(spec)} is no element type; the element types are {known}")
    )


@dataclass(frozen=True, slots=True)
class Abstract:
    """The abstract value of an array: its type, and whether the type is weak."""

    type: TensorType
    weak: bool = False


# The direct successors of each type in the promotion lattice. Starred types are weak.
_STEPS: dict[str, tuple[str, ...]] = {
    "bool": ("i*",),
    "i*": ("u8", "i8"),
    "u8": ("i16", "u16"),
    "u16": ("i32", "u32"),
    "u32": ("i64", "u64"),
    "u64": ("f*",),
    "i8": ("i16",),
    "i16": ("i32",),
    "i32": ("i64",),
    "i64": ("f*",),
    "f*": ("bf16", "f16", "c*"),
    "bf16": ("f32",),
    "f16": ("f32",),
    "f32": ("f64", "c64"),
    "f64": ("c128",),
    "c*": ("c64",),
    "c64": ("c128",),
    "c128": (),
}


@cache
def _above(node: str) -> frozenset[str]:
    """Return every type to which a type promotes, including itself."""
    return frozenset({node}).union(*(_above(step) for step in _STEPS[node]))


@cache
def _join(first: str, second: str) -> str:
    """Return the least type to which both types promote."""
    common = _above(first) & _above(second)
    return next(node for node in _STEPS if node in common and common <= _above(node))


def _node(name: str, weak: bool) -> str:
    if not weak or name == "bool":
        return name
    return "i*" if name in INTEGERS else "f*" if name in FLOATS else "c*"


_WEAK = {"i*": "i64", "f*": "f64", "c*": "c128"}


@cache
def join(*kinds: tuple[str, bool]) -> tuple[str, bool]:
    """Return the element type of mixed operands, not yet canonical; each operand is (name,
    weak)."""
    if any(name == "key" for name, _ in kinds):
        if all(name == "key" for name, _ in kinds):
            return "key", False
        raise OperationTypeError(
            point(
                "random keys do not mix with numbers; draw numbers from a key with "
                "shardir.random, or read its words with shardir.random.key_data"
            )
        )
    all_weak = all(weak for _, weak in kinds)
    nodes = [_node(name, weak and not all_weak) for name, weak in kinds]
    found = nodes[0]
    for node in nodes[1:]:
        found = _join(found, node)
    return _WEAK.get(found, found), all_weak or found in _WEAK


def result_type(*kinds: tuple[str, bool]) -> tuple[str, bool]:
    """Return the element type of mixed operands and whether it is weak; each operand is (name,
    weak).
    """
    name, weak = join(*kinds)
    return canonical(name), weak


def inexact(name: str) -> str:
    """Return the floating or complex type in which `name` is computed, by JAX's rule.

    Integers of 64 bits become f64, all narrower ones and bools f32, with `enable_x64` too.
    """
    if name in INEXACT:
        return name
    return canonical("f64") if name in ("i64", "u64") else "f32"
