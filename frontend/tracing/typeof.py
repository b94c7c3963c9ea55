"""`typeof`: the type of an array, with the sharding in it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardir._imports.lazy_import import lazy_import
from shardir.frontend.absent_members import WithAbsentMembers
from shardir.frontend.argument_checks import canonicalize_shape
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.abstract_value import AbstractValue, ArraySizes
from shardir.frontend.arrays.array import Array
from shardir.frontend.arrays.array_types import DTypeLike
from shardir.frontend.arrays.float0 import FLOAT0
from shardir.frontend.arrays.numpy_conversion import abstract_of
from shardir.frontend.arrays.signature import ShapeDtypeStruct
from shardir.frontend.call_signatures import with_method_errors
from shardir.frontend.shardings.manual_axes import get_abstract_mesh
from shardir.frontend.shardings.manual_axis_type import ManualAxisType
from shardir.frontend.shardings.mesh import AbstractMesh, Mesh
from shardir.frontend.shardings.partition_spec import (
    UNCONSTRAINED,
    PartitionSpec,
    format_axes,
    format_summed_axes,
)
from shardir.frontend.shardings.sharding import NamedSharding, Sharding
from shardir.frontend.tracing.named_axes import checked_axes
from shardir.frontend.tracing.promotion import DType, dtype_of, user_dtype
from shardir.frontend.tracing.trace import current_trace, require_trace
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import INEXACT, TensorType

if TYPE_CHECKING:
    from shardir.frontend.tracing import varying_axes
else:
    varying_axes = lazy_import("shardir.frontend.tracing.varying_axes")


@with_method_errors
@dataclass(frozen=True, slots=True, repr=False, init=False)
class ShapedArray(ArraySizes, WithAbsentMembers):
    """The type of an array: `str` returns `float32[8@x,4@y]`.

    The text states the axes of type `AxisType.Explicit` that shard each dimension, after `V:` the
    manual axes along which the value varies, and after `U:` the axes along which the devices hold
    partial sums; `~` stands before a weak type.
    Raises `IndivisibleError` if Explicit axes do not divide a dimension.
    """

    shape: tuple[int, ...]
    """The global size of each dimension."""
    dtype: DType
    """The element type."""
    weak_type: bool
    """True if the element type adapts to that of other operands, as for Python numbers."""
    sharding: NamedSharding
    """The sharding along Explicit axes, with an entry for each dimension, on an abstract mesh; the
    mesh has no axes if the array is on none."""
    manual_axis_type: ManualAxisType
    """The manual axes along which the value varies, inside of `shard_map` with `check_vma`."""

    @with_argument_errors
    def __init__(
        self,
        shape: Sequence[int],
        dtype: DTypeLike,
        weak_type: bool = False,
        *,
        sharding: Sharding | None = None,
        manual_axis_type: ManualAxisType | None = None,
    ) -> None:
        sizes = canonicalize_shape(shape)
        mesh: Mesh = AbstractMesh((), ())
        spec = PartitionSpec(*[None] * len(sizes))
        if isinstance(sharding, NamedSharding):
            mesh = sharding.mesh.abstract_mesh
            spec = _explicit_spec(sharding, len(sizes))
            sharding.check_explicit_divides(sizes)
        put = object.__setattr__
        put(self, "shape", sizes)
        put(self, "dtype", FLOAT0 if dtype == FLOAT0 else user_dtype(dtype_of(dtype)))
        put(self, "weak_type", bool(weak_type))
        put(self, "sharding", NamedSharding(mesh, spec))
        put(self, "manual_axis_type", manual_axis_type or ManualAxisType())

    @property
    def mat(self) -> ManualAxisType:
        """The manual axes, `manual_axis_type`."""
        return self.manual_axis_type

    @property
    def abstract(self) -> AbstractValue:
        """The abstract value: shape, element type and weakness."""
        return AbstractValue(TensorType(self.shape, dtype_of(self.dtype)), self.weak_type)

    def to_tangent_aval(self) -> "ShapedArray":
        """Return the type of a tangent: of integers, the empty type `float0`."""
        dtype = self.dtype if self.abstract.type.dtype in INEXACT else FLOAT0
        return ShapedArray(
            self.shape,
            dtype,
            self.weak_type,
            sharding=self.sharding,
            manual_axis_type=self.manual_axis_type,
        )

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapedArray({self._text()}{weak})"

    def __str__(self) -> str:
        return f"{'~' if self.weak_type else ''}{self._text()}"

    def _text(self) -> str:
        spec = _explicit_spec(self.sharding, self.ndim)
        dims = [spec.axes(dim) for dim in range(self.ndim)]
        sizes = ",".join(
            f"{size}@{format_axes(axes)}" if axes and axes is not UNCONSTRAINED else str(size)
            for size, axes in zip(self.shape, dims, strict=True)
        )
        name = "float0" if self.dtype == FLOAT0 else getattr(self.dtype, "name", str(self.dtype))
        return f"{name}[{sizes}]{_format_axes(self.manual_axis_type.varying, spec)}"


def _format_axes(varying: frozenset[str], spec: PartitionSpec) -> str:
    """Return the varying, unreduced and reduced axes as text, such as `{V:x, U:y}`."""
    summed = format_summed_axes(spec.unreduced, spec.reduced)
    if not varying:
        return summed
    parts = [f"V:{format_axes(tuple(sorted(varying)))}", *([summed[1:-1]] if summed else [])]
    return f"{{{', '.join(parts)}}}"


def _explicit_spec(sharding: NamedSharding, rank: int) -> PartitionSpec:
    """Return the spec along Explicit axes, with an entry for each dimension."""
    if not sharding.has_explicit_axes:
        return PartitionSpec(*[None] * rank)
    explicit = frozenset(sharding.mesh.explicit_axes)
    dims: list[tuple[str, ...]] = []
    for dim in range(rank):
        axes = sharding.spec.axes(dim)
        dims.append(
            () if axes is UNCONSTRAINED else tuple(axis for axis in axes if axis in explicit)
        )
    unreduced, reduced = sharding.spec.unreduced & explicit, sharding.spec.reduced & explicit
    return PartitionSpec(*dims, unreduced=unreduced, reduced=reduced)


@with_argument_errors
def typeof(x: object) -> ShapedArray:
    """Return the type of an array, a number, or a traced value.

    Raises `NotAnArrayError` for any other object.
    """
    if isinstance(x, Tracer):
        type = shaped_array(x.abstract, _sharding_of_tracer(x))
        varying = varying_axes.varying_axis_names(x) if checked_axes() else None
        if not varying:
            return type
        return ShapedArray(
            type.shape,
            type.dtype,
            type.weak_type,
            sharding=type.sharding,
            manual_axis_type=ManualAxisType(varying=varying),
        )
    if isinstance(x, (Array, ShapeDtypeStruct)):
        sharding = x.sharding if isinstance(x.sharding, Sharding) else None
        return shaped_array(x.abstract, sharding)
    return shaped_array(abstract_of(x), None)


def _sharding_of_tracer(x: Tracer) -> Sharding | None:
    types = require_trace("typeof").program.sharding_types
    sharding = None if types is None else types.sharding_of(x.value)
    return NamedSharding(get_abstract_mesh(), PartitionSpec()) if sharding is None else sharding


def shaped_array(abstract: AbstractValue, sharding: Sharding | None) -> ShapedArray:
    """Return the type of an abstract value with a sharding; `None` stands for no mesh."""
    type = abstract.type
    return ShapedArray(type.shape, user_dtype(type.dtype), abstract.weak, sharding=sharding)


def find_explicit_sharding(x: object) -> NamedSharding | None:
    """Return the sharding in the type of an object; `None` if no Explicit axis is in it."""
    sharding = x.abstract.sharding if isinstance(x, Tracer) else None
    if isinstance(x, (Array, ShapeDtypeStruct)):
        sharding = x.sharding
    if isinstance(sharding, NamedSharding) and sharding.has_explicit_axes:
        return sharding
    return None


def is_untyped(x: object) -> bool:
    """Return whether `x` is a constant of a traced program: it adopts the sharding of others."""
    trace = current_trace()
    if not isinstance(x, Tracer) or trace is None:
        return trace is not None and not isinstance(x, (Array, ShapeDtypeStruct))
    types = trace.program.sharding_types
    return types is not None and types.is_untyped(x.value)


def explicit_spec(x: object, names: Collection[str]) -> PartitionSpec | None:
    """Return the Explicit axes among `names` that shard `x`; `None` without a typed sharding."""
    if not isinstance(x, (Tracer, Array, ShapeDtypeStruct)):
        return None
    type = shaped_array(x.abstract, _sharding_of_tracer(x)) if isinstance(x, Tracer) else typeof(x)
    sharding = type.sharding
    if not sharding.has_explicit_axes:
        return None
    dims = [sharding.spec.axes(dim) for dim in range(x.ndim)]
    return PartitionSpec(
        *(
            () if axes is UNCONSTRAINED else tuple(axis for axis in axes if axis in names)
            for axes in dims
        )
    )


def abstract_text(abstract: AbstractValue) -> str:
    """Return an abstract value as text, such as `float32[8@x,4]`."""
    sharding = abstract.sharding
    return str(shaped_array(abstract, sharding if isinstance(sharding, Sharding) else None))
