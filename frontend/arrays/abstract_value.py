"""Abstract values: the type of an array without its elements, and the base class of all objects
that have one."""

from dataclasses import dataclass
from math import prod
from typing import Protocol

from shardir.ir.types import TensorType


@dataclass(frozen=True, slots=True)
class AbstractValue:
    """The abstract value of an array: its type, and whether the type is weak.

    `sharding` is the `NamedSharding` in the type of a traced value on a mesh with Explicit axes;
    `None` if no such axis shards the value. (The module of that class depends on this one.)
    """

    type: TensorType
    weak: bool = False
    sharding: object = None


class _ElementType(Protocol):
    @property
    def itemsize(self) -> int: ...


class _Shaped(Protocol):
    """An object with the shape of an array."""

    @property
    def shape(self) -> tuple[int, ...]: ...


class _Typed(_Shaped, Protocol):
    """An object with the shape and the element type of an array."""

    @property
    def dtype(self) -> _ElementType: ...


class ArraySizes:
    """Base class with the sizes that follow from the shape and the element type of an array."""

    __slots__ = ()

    @property
    def ndim(self: _Shaped) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self: _Shaped) -> int:
        """The number of elements of the global array."""
        return prod(self.shape)

    @property
    def itemsize(self: _Typed) -> int:
        """The size of one element in bytes."""
        return self.dtype.itemsize

    @property
    def nbytes(self: _Typed) -> int:
        """The size of all elements of the global array in bytes."""
        return prod(self.shape) * self.dtype.itemsize


class ArrayBase(ArraySizes):
    """Base class of arrays and tracers, for modules that only distinguish them from other objects.

    Subclasses define `shape` and `abstract`; `operators` adds the operators and methods.
    """

    __slots__ = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The global size of each dimension."""
        raise NotImplementedError

    @property
    def abstract(self) -> AbstractValue:
        """The abstract value: shape, element type and weakness."""
        raise NotImplementedError
