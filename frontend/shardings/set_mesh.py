"""`set_mesh`: a mesh that stays entered until another one is set or a block ends; `use_mesh`: for a
block."""

from contextlib import AbstractContextManager, ExitStack, nullcontext

from shardir.errors import count_noun
from shardir.frontend.argument_errors import locate_errors, with_argument_errors
from shardir.frontend.errors import MeshError
from shardir.frontend.shardings.mesh import (
    Mesh,
    current_mesh,
    entered_meshes,
    set_entered_meshes,
)
from shardir.frontend.shardings.partition_spec import PartitionSpec
from shardir.frontend.shardings.sharding import NamedSharding
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.trace import current_trace, require_sharding_types


class set_mesh:
    """Make `mesh` the mesh of bare `PartitionSpec`s, from now on or for a block.

        set_mesh(mesh)
        with set_mesh(mesh):
            ...

    It applies to this thread or asyncio task; `None` means no mesh. Raises `MeshError` for an
    object that is not a mesh, and while a function is traced.
    """

    __slots__ = ("_before", "_mesh")

    @locate_errors
    def __init__(self, mesh: Mesh | None) -> None:
        if mesh is not None and not isinstance(mesh, Mesh):
            raise MeshError(with_location(f"set_mesh takes a Mesh, got {mesh!r}"))
        if mesh is not None:
            mesh.check_no_manual_axes("set_mesh has")
        if current_trace() is not None:
            raise MeshError(
                with_location(
                    "set_mesh is called while a function is traced; call it outside, or use "
                    "`with mesh:` inside"
                )
            )
        self._mesh = mesh
        self._before = entered_meshes()
        set_entered_meshes(() if mesh is None else (mesh,))

    def __repr__(self) -> str:
        return f"<set_mesh of {self._mesh!r}>"

    def __enter__(self) -> None:
        """Do nothing, because the constructor has set the mesh."""

    def __exit__(self, *_: object) -> None:
        set_entered_meshes(self._before)


class use_mesh:
    """Make `mesh` the mesh of bare `PartitionSpec`s for a block: `with use_mesh(mesh):`.

    `None` means no mesh. Raises `MeshError` for an object that is not a mesh.
    """

    __slots__ = ("_before", "_mesh")

    @locate_errors
    def __init__(self, mesh: Mesh | None) -> None:
        if mesh is not None and not isinstance(mesh, Mesh):
            raise MeshError(with_location(f"use_mesh takes a Mesh, got {mesh!r}"))
        if mesh is not None:
            mesh.check_no_manual_axes("use_mesh has")
        self._mesh = mesh
        self._before: tuple[Mesh, ...] = ()

    def __repr__(self) -> str:
        return f"<use_mesh of {self._mesh!r}>"

    def __enter__(self) -> Mesh | None:
        """Enter the mesh."""
        self._before = entered_meshes()
        set_entered_meshes(() if self._mesh is None else (self._mesh,))
        return self._mesh

    def __exit__(self, *_: object) -> None:
        set_entered_meshes(self._before)


class use_abstract_mesh:
    """Make `mesh` the mesh of bare `PartitionSpec`s for a block: `with use_abstract_mesh(mesh):`.

    If a mesh with devices is entered, its devices are arranged along the axes of `mesh`, so that
    values keep them. While a function is traced, shardings along the Explicit axes of `mesh` are
    part of types in the block, and those along its Auto axes are not. Raises `MeshError` for an
    object that is not a mesh, and if the entered mesh has another number of devices.
    """

    __slots__ = ("_block", "_mesh")

    @locate_errors
    def __init__(self, mesh: Mesh) -> None:
        if not isinstance(mesh, Mesh):
            raise MeshError(f"use_abstract_mesh takes an AbstractMesh, got {mesh!r}")
        self._mesh = mesh
        self._block = ExitStack()

    def __repr__(self) -> str:
        return f"<use_abstract_mesh of {self._mesh!r}>"

    @locate_errors
    def __enter__(self) -> Mesh:
        """Enter the mesh, with the devices of the mesh that is entered already."""
        mesh = _arrange_entered_devices(self._mesh)
        with ExitStack() as block:
            block.enter_context(use_mesh(mesh))
            block.enter_context(_use_axis_types(mesh))
            self._block = block.pop_all()
        return mesh

    def __exit__(self, *_: object) -> None:
        self._block.close()


def _arrange_entered_devices(mesh: Mesh) -> Mesh:
    """Return the devices of the entered mesh along the axes of `mesh`; without any, `mesh`."""
    entered = current_mesh()
    trace = current_trace()
    if entered is None and trace is not None and trace.program.sharding_types is not None:
        entered = trace.program.sharding_types.mesh
    if entered is None or mesh.empty or entered.empty:
        return mesh
    if mesh.size != entered.size:
        raise MeshError(
            f"use_abstract_mesh has {mesh!r} of {count_noun(mesh.size, 'device')}, and "
            f"{entered!r} with "
            f"{count_noun(entered.size, 'device')} is entered; use a mesh of as many devices"
        )
    return entered.update(mesh.axis_sizes, mesh.axis_names, mesh.axis_types)


def _use_axis_types(mesh: Mesh) -> AbstractContextManager[None]:
    """Give the values of the current trace types on `mesh` in the block."""
    trace = current_trace()
    if trace is None or (trace.program.sharding_types is None and not mesh.has_explicit_axes):
        return nullcontext()
    is_new = trace.program.sharding_types is None
    types = require_sharding_types(trace.program, NamedSharding(mesh, PartitionSpec()))
    if types.mesh.size != mesh.size or mesh.empty:
        return nullcontext()
    if is_new:
        types.leave_explicit_mode()
    return types.use_axis_types(mesh)


@with_argument_errors
def get_mesh() -> Mesh:
    """Return the entered mesh; raises `MeshError` if there is none."""
    mesh = current_mesh()
    if mesh is None:
        raise MeshError(
            with_location("no mesh is entered; enter one with `with mesh:` or set_mesh(mesh)")
        )
    return mesh
