"""Signatures of arguments: the abstract value and the sharding of an array, without its
elements."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, final
from weakref import WeakValueDictionary

import numpy as np

from shardir.errors import count_noun
from shardir.frontend.absent_members import WithAbsentMembers
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.call_signatures import with_method_errors
from shardir.frontend.errors import ArgumentError, ShapeError, ShardingError
from shardir.frontend.quoting import brief
from shardir.frontend.shardings.partition_spec import PartitionSpec
from shardir.frontend.shardings.sharding import Sharding, resolve_spec
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.promotion import DType, dtype_of, user_dtype
from shardir.ir.types import TensorType


@final
class ArraySignature:
    """The part of a cache key for one array: type, weakness, and the sharding if committed.

    Equal signatures are one object, so that comparing and hashing them is cheap.
    """

    __slots__ = ("__weakref__", "abstract", "sharding")

    def __init__(self, abstract: AbstractValue, sharding: Sharding | None) -> None:
        self.abstract, self.sharding = abstract, sharding


_signatures: WeakValueDictionary[tuple[AbstractValue, Sharding | None], ArraySignature] = (
    WeakValueDictionary()
)


def signature_of(abstract: AbstractValue, sharding: Sharding | None) -> ArraySignature:
    """Return the unique signature object; `sharding` is `None` for an uncommitted array."""
    return (
        _uncommitted_signature(abstract)
        if sharding is None
        else _intern_signature(abstract, sharding)
    )


def _intern_signature(abstract: AbstractValue, sharding: Sharding | None) -> ArraySignature:
    key = abstract, sharding
    result = _signatures.get(key)
    return result if result is not None else _signatures.setdefault(key, ArraySignature(*key))


@lru_cache(1 << 10)
def _uncommitted_signature(abstract: AbstractValue) -> ArraySignature:
    """Return the signature and keep it alive for a while, because equal ones are often made
    again."""
    return _intern_signature(abstract, None)


@with_method_errors
@final
class ShapeDtypeStruct(WithAbsentMembers):
    """The shape, element type and sharding of an array that need not exist.

    It replaces an array in `lower`, so that programs can be compiled without data, also for devices
    that this machine does not have.
    """

    __slots__ = ("_stated_sharding", "abstract")

    abstract: AbstractValue
    """The abstract value: shape, element type and weakness."""

    @with_argument_errors
    def __init__(
        self,
        shape: Sequence[int],
        dtype: object,
        *,
        sharding: Sharding | PartitionSpec | None = None,
        weak_type: bool = False,
    ) -> None:
        """`sharding` may be a spec on the mesh that is entered where the struct is used."""
        if not isinstance(shape, Iterable) or getattr(shape, "ndim", 1) == 0:
            raise ShapeError(with_location(f"a shape is a tuple of sizes, got {brief(shape)}"))
        sizes = tuple(shape)
        if not all(isinstance(size, (int, np.integer)) for size in sizes):
            raise ShapeError(with_location(f"shape {sizes} has a size that is not an integer"))
        if min(sizes, default=0) < 0:
            raise ShapeError(with_location(f"shape {sizes} has a negative size"))
        self.abstract = AbstractValue(TensorType(sizes, dtype_of(dtype)), weak_type)
        self._stated_sharding = sharding
        if isinstance(sharding, Sharding):
            sharding.check_compatible_aval(sizes)
        elif isinstance(sharding, PartitionSpec):
            if len(sharding) > len(sizes):
                has = f"{sharding} has {count_noun(len(sharding), 'entry', 'entries')}"
                raise ShardingError(with_location(f"{has} and shape {sizes} has {len(sizes)}"))
        elif sharding is not None:
            raise ArgumentError(
                with_location(
                    f"the sharding of a ShapeDtypeStruct is {sharding!r}; "
                    "write NamedSharding(mesh, PartitionSpec(...))"
                )
            )

    @classmethod
    def like(cls, x: Any) -> "ShapeDtypeStruct":
        """Return the struct of an object with a `shape` and a `dtype`, with its sharding if
        committed."""
        sharding = getattr(x, "sharding", None) if getattr(x, "committed", True) else None
        weak = bool(getattr(x, "weak_type", False))
        return cls(x.shape, x.dtype, sharding=sharding, weak_type=weak)

    @property
    def sharding(self) -> Sharding | None:
        """The sharding, of a spec on the entered mesh; `None` if none is stated."""
        stated = self._stated_sharding
        if stated is None or isinstance(stated, Sharding):
            return stated
        return resolve_spec(stated, "the sharding of a ShapeDtypeStruct")

    @property
    def shape(self) -> tuple[int, ...]:
        """The global size of each dimension."""
        return self.abstract.type.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return user_dtype(self.abstract.type.dtype)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements of the global array."""
        return self.abstract.type.size

    @property
    def weak_type(self) -> bool:
        """True if the element type adapts to that of other operands, as for Python numbers."""
        return self.abstract.weak

    def update(self, **changes: Any) -> "ShapeDtypeStruct":
        """Return a copy in which `shape`, `dtype`, `sharding` or `weak_type` are replaced."""
        now = {name: getattr(self, name) for name in ("shape", "dtype", "weak_type")}
        return ShapeDtypeStruct(**{**now, "sharding": self._stated_sharding, **changes})

    @property
    def signature(self) -> ArraySignature:
        """The abstract value with the sharding, by which compiled programs are found."""
        return signature_of(self.abstract, self.sharding)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ShapeDtypeStruct):
            return NotImplemented
        return (self.abstract, self._stated_sharding) == (other.abstract, other._stated_sharding)

    def __hash__(self) -> int:
        return hash((self.abstract, self._stated_sharding))

    def __repr__(self) -> str:
        stated = self._stated_sharding
        where = "" if stated is None else f", sharding={stated}"
        weak = ", weak_type=True" if self.weak_type else ""
        name = self.dtype.name
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={name}{where}{weak})"
