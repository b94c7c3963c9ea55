"""What type rules check, and the sentences they say when a check fails.

The sentences start after the operation's name, which `shardir.build.infer` puts in front.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from shardir.types import COMPLEX, DTYPES, FLOATS, INTEGERS, TensorType

Ints = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Domain:
    """A set of element types and the words for it."""

    words: str
    dtypes: tuple[str, ...]

    def check(self, *operands: TensorType) -> None:
        """Raises `TypeError` when an operand is not of one of the element types."""
        for type in operands:
            if type.dtype not in self.dtypes:
                raise TypeError(f"takes {self.words} operands, got {type}")


BOOL = Domain("bool", ("bool",))
FLOAT = Domain("floating-point", FLOATS)
PART = Domain("f32 or f64", ("f32", "f64"))
COMPLEX_ONLY = Domain("complex", COMPLEX)
INTEGER = Domain("integer", INTEGERS)
BITS = Domain("bool or integer", ("bool", *INTEGERS))
REAL = Domain("integer or floating-point", (*INTEGERS, *FLOATS))
INEXACT = Domain("floating-point or complex", (*FLOATS, *COMPLEX))
NUMBER = Domain("integer, floating-point or complex", (*INTEGERS, *FLOATS, *COMPLEX))
ORDERED = Domain("bool, integer or floating-point", ("bool", *INTEGERS, *FLOATS))
ARITHMETIC = Domain("bool, integer, floating-point or complex", ("bool", *NUMBER.dtypes))
ANY = Domain("any", DTYPES)


def one_type(*operands: TensorType) -> TensorType:
    """The type that all operands have; raises `TypeError` when they differ."""
    if len(set(operands)) != 1:
        raise TypeError(
            f"operands must have one type, got {listed(operands)}; broadcast or convert them first"
        )
    return operands[0]


def one_dtype(*operands: TensorType) -> str:
    """The element type that all operands have; raises `TypeError` when they differ."""
    if len({type.dtype for type in operands}) != 1:
        raise TypeError(
            f"operands must have one element type, got {listed(operands)}; convert them first"
        )
    return operands[0].dtype


def stated(result: TensorType | None, x: TensorType | None = None) -> TensorType:
    """The stated result type; it must be there, and have the element type of `x` if given."""
    if not isinstance(result, TensorType):
        raise TypeError("its result type is a choice; state it with result=")
    if x is not None and result.dtype != x.dtype:
        raise TypeError(f"keeps the element type, but {x} would become {result}; convert it")
    return result


def dim_of(x: TensorType, dim: int, name: str = "dim") -> int:
    """`dim`, checked to be a dimension of `x`."""
    if not _is_integer(dim) or not 0 <= dim < x.rank:
        raise TypeError(f"{name}={dim!r} is no dimension of {x}; {_choice(x.rank)}")
    return dim


def dims_of(x: TensorType, dims: Sequence[int], name: str = "dims") -> Ints:
    """`dims`, checked to be different dimensions of `x`."""
    integers(name, dims)
    for dim in dims:
        if not 0 <= dim < x.rank:
            raise TypeError(
                f"{name}={show(dims)} names {dim!r}, no dimension of {x}; {_choice(x.rank)}"
            )
    if len(set(dims)) != len(dims):
        raise TypeError(f"{name}={show(dims)} names a dimension twice")
    return tuple(dims)


def per_dim(x: TensorType, **attrs: Sequence[int]) -> None:
    """Each attribute must have one integer for each dimension of `x`."""
    for name, numbers in attrs.items():
        integers(name, numbers)
        if len(numbers) != x.rank:
            raise TypeError(f"{name}={show(numbers)} must have one number a dimension of {x}")


def integers(name: str, numbers: object) -> None:
    """An attribute must be a sequence of integers."""
    if not isinstance(numbers, tuple | list) or not all(_is_integer(n) for n in numbers):
        raise TypeError(f"{name}={numbers!r} must be a sequence of integers")


def show(numbers: Sequence[object]) -> str:
    """A sequence as text writes it."""
    return f"[{', '.join(map(str, numbers))}]"


def listed(things: Sequence[object]) -> str:
    """`a, b and c`."""
    *most, last = map(str, things)
    return f"{', '.join(most)} and {last}" if most else last


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _choice(rank: int) -> str:
    if rank == 0:
        return "it has no dimensions"
    return "it has only dimension 0" if rank == 1 else f"it has dimensions 0 to {rank - 1}"
