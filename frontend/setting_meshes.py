"""`set_mesh`: a mesh that stays entered, until another is or a block ends."""

from shardir.frontend.abstract_mesh import AbstractMesh
from shardir.frontend.errors import MeshError
from shardir.frontend.locations import point
from shardir.frontend.mesh import Mesh, current_mesh, enter_meshes, entered_meshes
from shardir.frontend.trace import current


class set_mesh:
    """Let `mesh` be what bare `PartitionSpec`s refer to, from now on or for a block.

        set_mesh(mesh)
        with set_mesh(mesh):
            ...

    It holds in this thread, or task; `None` is for no mesh. Raises `MeshError` for what is no mesh,
    and while a function is traced.
    """

    __slots__ = ("_before",)

    def __init__(self, mesh: Mesh | None) -> None:
        if mesh is not None and not isinstance(mesh, Mesh):
            raise MeshError(point(f"set_mesh takes a Mesh, got {mesh!r}"))
        if current() is not None:
            raise MeshError(
                point("set_mesh is called while a function is traced; call it outside, or use "
                      "`with mesh:` inside")
            )  # fmt: skip
        self._before = entered_meshes()
        enter_meshes(() if mesh is None else (mesh,))

    def __enter__(self) -> None:
        """The mesh is set already."""

    def __exit__(self, *_: object) -> None:
        enter_meshes(self._before)


def get_abstract_mesh() -> Mesh:
    """The axes of the mesh that is entered, without its devices; no axes if there is none."""
    mesh = current_mesh()
    return AbstractMesh((), ()) if mesh is None else mesh.abstract_mesh


def get_mesh() -> Mesh:
    """The mesh that is entered. Raises `MeshError` if there is none."""
    mesh = current_mesh()
    if mesh is None:
        raise MeshError(point("no mesh is entered; enter one by `with mesh:` or set_mesh(mesh)"))
    return mesh
