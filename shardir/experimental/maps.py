"""`Mesh` under its path in older JAX versions."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE = {"shardir.frontend.shardings.mesh": ("Mesh",)}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.frontend.shardings.mesh import Mesh as Mesh
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
