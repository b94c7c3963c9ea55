"""`set_mesh`: a mesh that stays entered until another one is set or a block ends; `use_mesh`: for a
block."""

from shardir.frontend.argument_errors import locate_errors
from shardir.frontend.errors import MeshError
from shardir.frontend.shardings.mesh import (
    Mesh,
    current_mesh,
    entered_meshes,
    set_entered_meshes,
)
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.trace import current_trace


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


def use_abstract_mesh(mesh: Mesh) -> use_mesh:
    """Make `mesh` the mesh of bare `PartitionSpec`s for a block.

    If the entered mesh has the same axes, it remains, so that values keep its devices.
    """
    entered = current_mesh()
    is_entered = isinstance(mesh, Mesh) and entered is not None and entered.shape == mesh.shape
    return use_mesh(entered if is_entered else mesh)


def get_mesh() -> Mesh:
    """Return the entered mesh; raises `MeshError` if there is none."""
    mesh = current_mesh()
    if mesh is None:
        raise MeshError(
            with_location("no mesh is entered; enter one with `with mesh:` or set_mesh(mesh)")
        )
    return mesh
