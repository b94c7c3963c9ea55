"""Arrangement of devices for a mesh."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE = {
    "shardir.frontend.shardings.hybrid_mesh": ("create_hybrid_device_mesh",),
    "shardir.frontend.shardings.mesh": ("create_device_mesh",),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.frontend.shardings.hybrid_mesh import (
        create_hybrid_device_mesh as create_hybrid_device_mesh,
    )
    from shardir.frontend.shardings.mesh import create_device_mesh as create_device_mesh
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
