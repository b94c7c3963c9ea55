"""Checks for type rules, with their error messages.

The messages continue the operation's name, which `shardir.ir.builder.infer_types` puts in
front.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shardir.ir.dtypes import SIGNED, SMALL_DTYPES, SMALL_FLOATS, SMALL_INTEGERS, UNSIGNED
from shardir.ir.types import COMPLEX, DTYPES, FLOATS, INTEGERS, TensorType

Ints = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DtypeDomain:
    """A set of element types and its description."""

    description: str
    dtypes: tuple[str, ...]

    def check(self, *operands: TensorType) -> None:
        """Raise `TypeError` if an operand has another element type."""
        for type in operands:
            if type.dtype not in self.dtypes:
                raise TypeError(f"takes {self.description} operands, got {type}")


BOOL = DtypeDomain("bool", ("bool",))
FLOAT = DtypeDomain("floating-point", FLOATS)
"""Floating-point types."""
WIDE_FLOAT = DtypeDomain(
    "floating-point (at least 16 bits)", tuple(name for name in FLOATS if name not in SMALL_DTYPES)
)
COMPLEX_PART = DtypeDomain("f32 or f64", ("f32", "f64"))
COMPLEX_ONLY = DtypeDomain("complex", COMPLEX)
INTEGER = DtypeDomain("integer", INTEGERS)
"""Integer types, signed and unsigned."""
BITS = DtypeDomain("bool or integer", ("bool", *INTEGERS))
REAL = DtypeDomain("integer or floating-point", (*INTEGERS, *FLOATS))
"""Integer and floating-point types."""
INEXACT = DtypeDomain("floating-point or complex", (*FLOATS, *COMPLEX))
"""Floating-point and complex types."""
NUMERIC = DtypeDomain("integer, floating-point or complex", (*INTEGERS, *FLOATS, *COMPLEX))
"""All types except bool."""
ORDERED = DtypeDomain("bool, integer or floating-point", ("bool", *INTEGERS, *FLOATS))
ARITHMETIC = DtypeDomain("bool, integer, floating-point or complex", ("bool", *NUMERIC.dtypes))
ANY_DTYPE = DtypeDomain("any", DTYPES)
"""All types."""


def common_type(*operands: TensorType) -> TensorType:
    """Return the common type of the operands; raise `TypeError` if they differ."""
    if len(set(operands)) != 1:
        raise TypeError(
            f"operands must have one type, got {join_with_and(operands)}; broadcast or convert "
            "them first"
        )
    return operands[0]


def common_dtype(*operands: TensorType) -> str:
    """Return the common element type of the operands; raise `TypeError` if they differ."""
    if len({type.dtype for type in operands}) != 1:
        raise TypeError(
            f"operands must have one element type, got {join_with_and(operands)}; convert them "
            "first"
        )
    return operands[0].dtype


def check_accumulator(dtype: str, to: str) -> None:
    """Check that sums of products of `dtype` can be accumulated in `to`, a wider dtype."""
    NUMERIC.check(TensorType((), to))
    if dtype in SMALL_FLOATS:
        is_wider = to in INEXACT.dtypes
    elif dtype in SMALL_INTEGERS:
        is_wider = to in INEXACT.dtypes or to in SIGNED or dtype in UNSIGNED
    else:
        names = (TensorType((), dtype).numpy, TensorType((), to).numpy)
        is_wider = to not in SMALL_DTYPES and np.result_type(*names) == names[1]
    if not is_wider or to in SMALL_DTYPES:
        raise TypeError(f"cannot accumulate {dtype} products in {to}; convert the result instead")


def require_result_type(result: TensorType | None, x: TensorType | None = None) -> TensorType:
    """Return the stated result type; raise `TypeError` if it is missing or changes the element type
    of `x`.
    """
    if not isinstance(result, TensorType):
        raise TypeError("its result type is not determined; state it with result=")
    if x is not None and result.dtype != x.dtype:
        raise TypeError(f"keeps the element type, but {x} would become {result}; convert it")
    return result


def check_dim(x: TensorType, dim: int, name: str = "dim") -> int:
    """Return `dim` after checking that it is a dimension of `x`."""
    if not _is_integer(dim) or not 0 <= dim < x.rank:
        raise TypeError(f"{name}={dim!r} is not a dimension of {x}; {_describe_dims(x.rank)}")
    return dim


def check_dims(x: TensorType, dims: Sequence[int], name: str = "dims") -> Ints:
    """Return `dims` after checking that they are distinct dimensions of `x`."""
    check_integers(name, dims)
    for dim in dims:
        if not 0 <= dim < x.rank:
            raise TypeError(
                f"{name}={format_list(dims)} names {dim!r}, not a dimension of {x}; "
                f"{_describe_dims(x.rank)}"
            )
    if len(set(dims)) != len(dims):
        raise TypeError(f"{name}={format_list(dims)} names a dimension twice")
    return tuple(dims)


def check_per_dim(x: TensorType, **attrs: Sequence[int]) -> None:
    """Check that each attribute has one integer per dimension of `x`."""
    for name, numbers in attrs.items():
        check_integers(name, numbers)
        if len(numbers) != x.rank:
            raise TypeError(
                f"{name}={format_list(numbers)} must have one number a dimension of {x}"
            )


def check_integers(name: str, numbers: object) -> None:
    """Check that an attribute is a sequence of integers."""
    if not isinstance(numbers, tuple | list) or not all(_is_integer(n) for n in numbers):
        raise TypeError(f"{name}={numbers!r} must be a sequence of integers")


def format_list(numbers: Sequence[object]) -> str:
    """Return a sequence in the syntax of the text."""
    return f"[{', '.join(map(str, numbers))}]"


def join_with_and(items: Sequence[object]) -> str:
    """Return the items as `a, b and c`."""
    *most, last = map(str, items)
    return f"{', '.join(most)} and {last}" if most else last


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _describe_dims(rank: int) -> str:
    if rank == 0:
        return "it has no dimensions"
    return "it has only dimension 0" if rank == 1 else f"it has dimensions 0 to {rank - 1}"
