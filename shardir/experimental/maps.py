"""`Mesh`, where older programs import it from."""

from typing import TYPE_CHECKING

from shardir._lazy import lazy_names

TABLE = {"shardir.frontend.mesh": ("Mesh",)}
"""Where each public name is defined."""

if TYPE_CHECKING:
    from shardir.frontend.mesh import Mesh as Mesh
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
