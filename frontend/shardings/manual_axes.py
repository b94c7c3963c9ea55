"""Manual axes at the current line: inside of a manual region, each device runs its own code along
these axes, and constraints may not use them.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.errors import ShardingError
from shardir.frontend.shardings.axis_type import AxisType
from shardir.frontend.shardings.mesh import AbstractMesh, Mesh, current_mesh
from shardir.frontend.shardings.partition_spec import UNCONSTRAINED
from shardir.frontend.shardings.sharding import Sharding
from shardir.frontend.source_locations import with_location

_manual_axes: ContextVar[tuple[tuple[Mesh, str], ...]] = ContextVar("shardir_manual", default=())


@contextmanager
def manual_axes(mesh: Mesh, names: Sequence[str]) -> Iterator[None]:
    """Mark axes of a mesh as manual inside the block: each device runs its own code along them."""
    token = _manual_axes.set((*_manual_axes.get(), *((mesh, name) for name in names)))
    try:
        yield
    finally:
        _manual_axes.reset(token)


def manual_axis_names(mesh: Mesh) -> tuple[str, ...]:
    """Return the axes of a mesh that are manual at the current line."""
    return tuple(
        name
        for other, name in _manual_axes.get()
        if name in mesh.axis_names and other.device_assignment == mesh.device_assignment
    )


def is_in_manual_region() -> bool:
    """Return whether the current line is inside a manual region."""
    return bool(_manual_axes.get())


def check_no_manual_axes(sharding: Sharding, rank: int) -> None:
    """Raise `ShardingError` if a sharding uses an axis that is manual at the current line."""
    for mesh, name in _manual_axes.get():
        if mesh.device_assignment != sharding.device_assignment:
            continue
        stride, size = mesh.strides[name], mesh.shape[name]
        for axes in sharding.sub_axes(rank):
            for digit in () if axes is UNCONSTRAINED else axes:
                if digit.stride < stride * size and stride < digit.span:
                    raise ShardingError(
                        with_location(
                            f"{sharding} is requested for a value that varies along {name!r}, "
                            f"which is a manual axis at this line; omit {name!r} from the sharding"
                        )
                    )


@with_argument_errors
def get_abstract_mesh() -> Mesh:
    """Return the axes of the entered mesh without its devices; no axes if no mesh is entered.

    Inside of `shard_map`, the type of its manual axes is `AxisType.Manual`.
    """
    mesh = current_mesh()
    if mesh is None:
        return AbstractMesh((), ())
    manual = dict.fromkeys(manual_axis_names(mesh), AxisType.Manual)
    return mesh.abstract_mesh.update_axis_types(manual) if manual else mesh.abstract_mesh
