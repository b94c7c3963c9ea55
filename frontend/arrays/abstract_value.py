"""Abstract values: the type of an array without its elements, and the base class of all objects
that have one."""

from dataclasses import dataclass
from math import prod

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


class ArrayBase:
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

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements of the global array."""
        return prod(self.shape)
