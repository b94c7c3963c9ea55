"""Functions with batching rules of their own."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE = {
    "shardir.frontend.transforms.custom_vmap": ("custom_vmap", "sequential_vmap"),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.frontend.transforms.custom_vmap import (
        custom_vmap as custom_vmap,
        sequential_vmap as sequential_vmap,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
