"""Well-formedness of meshes, types, shardings and attributes, independent of a program.

Every function yields one sentence per violated rule, and nothing for a well-formed argument. The
rules for shardings are those of OpenXLA Shardy (docs/sharding_representation.md there).
"""

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

from shardir.errors import suggest_name
from shardir.ir.dtypes import KEYS
from shardir.ir.mesh import Mesh, axis_size_fault
from shardir.ir.operation import Attr, Dense
from shardir.ir.sharding import (
    Axes,
    Axis,
    DimSharding,
    Sharding,
    missing_axis_fault,
    sub_axis_fault,
)
from shardir.ir.sub_axes import can_coexist
from shardir.ir.types import COMPLEX, DTYPES, NUMPY_DTYPES, TOKEN, TensorType
from shardir.text.printer import format_axis

REDUCTIONS = ("add", "max", "min", "mul")
"""The reductions that can combine partial values."""


def find_mesh_faults(mesh: Mesh) -> Iterator[str]:
    names = [name for name, _ in mesh.axes]
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            yield f"mesh @{mesh.name} has two axes called {name!r}"
    for name, size in mesh.axes:
        if fault := axis_size_fault(name, size):
            yield f"mesh @{mesh.name}: {fault}"
    ids = mesh.device_ids
    if ids is None:
        return
    if mesh.is_maximal:
        if len(ids) != 1 or ids[0] < 0:
            yield f"mesh @{mesh.name} without axes needs one device id, it has {list(ids)}"
    elif len(ids) != mesh.size or sorted(ids) != list(range(len(ids))):
        yield f"mesh @{mesh.name} needs the device ids 0 to {mesh.size - 1} in some order"


def find_type_faults(type: TensorType) -> Iterator[str]:
    if type.dtype == TOKEN:
        if type.shape:
            yield "a token has no dimensions"
    elif type.dtype not in DTYPES:
        hint = suggest_name(type.dtype, DTYPES)
        message = f"no element type is called {type.dtype!r}"
        yield f"{message}; {hint}" if hint else message
    for size in type.shape:
        if not _is_int(size) or size < 0:
            yield f"{size!r} is not a dimension size; sizes are integers of 0 or more"


def find_sharding_faults(
    sharding: Sharding, type: TensorType, meshes: dict[str, Mesh]
) -> Iterator[str]:
    """Yield the reasons why a tensor of this type cannot have the sharding."""
    mesh = meshes.get(sharding.mesh)
    if mesh is None:
        has = ", ".join(f"@{name}" for name in meshes) or "none"
        yield f"no mesh is called {sharding.mesh!r}; the module has {has}"
        return
    if len(sharding.dims) != type.rank:
        yield f"the sharding is of rank {len(sharding.dims)}, the tensor of rank {type.rank}"
    lists = [dim.axes for dim in sharding.dims] + [sharding.replicated, sharding.unreduced]
    axes = [axis for part in lists for axis in part]
    for axis in axes:
        yield from find_axis_faults(axis, mesh)
    for dim in sharding.dims:
        yield from _find_dim_faults(dim)
    if sharding.reduction not in REDUCTIONS:
        combine = ", ".join(REDUCTIONS)
        yield f"partial values cannot be combined by {sharding.reduction!r}; it is one of {combine}"
    elif sharding.unreduced and not _can_reduce(type.dtype, sharding.reduction):
        yield f"values of {type.dtype} do not combine by {sharding.reduction}"
    if any(axis.name not in mesh.sizes or axis.pre < 1 or axis.size < 1 for axis in axes):
        return
    yield from _find_overlap_faults(axes, mesh)
    for part in lists:
        yield from _find_unmerged_faults(part, mesh)
    order = list(mesh.sizes)
    for word, part in (("replicated", sharding.replicated), ("unreduced", sharding.unreduced)):
        ordered = tuple(sorted(part, key=lambda axis: (order.index(axis.name), axis.pre)))
        if part != ordered:
            yield (
                f"{word} axes are in the order of the mesh; "
                f"write {word}({', '.join(format_axis(axis, mesh) for axis in ordered)})"
            )


def find_axis_list_faults(lists: Sequence[Axes], mesh: Mesh) -> Iterator[str]:
    """Yield the reasons why no tensor can be sharded along all of the lists, one per dimension."""
    axes = [axis for part in lists for axis in part]
    faults = [fault for axis in axes for fault in find_axis_faults(axis, mesh)]
    yield from faults
    if faults:
        return
    yield from _find_overlap_faults(axes, mesh)
    for part in lists:
        yield from _find_unmerged_faults(part, mesh)


def find_axis_faults(axis: Axis, mesh: Mesh) -> Iterator[str]:
    """Yield the reasons why the mesh does not have the axis or sub-axis."""
    if fault := missing_axis_fault(axis.name, mesh):
        yield fault
        return
    size = mesh.sizes[axis.name]
    if fault := sub_axis_fault(axis, mesh):
        yield fault
    elif axis.size == 1 and size > 1:
        yield f"{axis} is a sub-axis of size 1, which does not shard; leave it out"


def find_attribute_faults(attr: Attr) -> Iterator[str]:
    """Yield the reasons why the text cannot represent an attribute."""
    if isinstance(attr, tuple):
        for item in attr:
            yield from find_attribute_faults(item)
    elif isinstance(attr, Dense):
        if attr.array.dtype not in NUMPY_DTYPES.values():
            yield f"holds an array of NumPy's {attr.array.dtype}, which has no element type"
    elif type(attr) not in _SCALAR_TYPES and not isinstance(attr, str | Axis):
        yield (
            f"is a {type(attr).__name__}; attributes are bool, int, float, complex, str, Symbol, "
            "Axis, Dense, or tuples of them"
        )


def _can_reduce(dtype: str, reduction: str) -> bool:
    """Return whether values of `dtype` can be reduced: keys have no arithmetic, complex numbers no
    order.
    """
    return dtype not in KEYS and (dtype not in COMPLEX or reduction in ("add", "mul"))


_SCALAR_TYPES = (bool, int, float, complex)


def _is_int(number: object) -> bool:
    return type(number) is int


def _find_dim_faults(dim: DimSharding) -> Iterator[str]:
    if dim.priority is None:
        return
    if dim.priority < 0:
        yield f"a priority is 0 or more, not {dim.priority}"
    if not dim.axes and not dim.open:
        yield f"a closed dimension without axes must not have the priority p{dim.priority}"


def _find_overlap_faults(axes: list[Axis], mesh: Mesh) -> Iterator[str]:
    for a, b in combinations(axes, 2):
        if a == b:
            yield f"{format_axis(a, mesh)} is used twice in one sharding"
        elif a.overlaps(b):
            yield f"{format_axis(a, mesh)} and {format_axis(b, mesh)} share positions of {a.name!r}"
        elif not can_coexist(a, b):
            yield (
                f"{format_axis(a, mesh)} and {format_axis(b, mesh)} are not parts of one split "
                f"of {a.name!r}"
            )


def _find_unmerged_faults(axes: Axes, mesh: Mesh) -> Iterator[str]:
    for a, b in pairwise(axes):
        if a.name == b.name and a.next == b.pre:
            merged = Axis(a.name, a.pre, a.size * b.size)
            yield (
                f"{format_axis(a, mesh)} and {format_axis(b, mesh)} follow one another; "
                f"write {format_axis(merged, mesh)}"
            )
