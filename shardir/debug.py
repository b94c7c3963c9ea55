"""Looking at arrays: who holds which part."""

from typing import TYPE_CHECKING

from shardir._lazy import lazy_names

TABLE = {
    "shardir.frontend.visualize": ("visualize_array_sharding", "visualize_sharding"),
}
"""Where each public name is defined."""

if TYPE_CHECKING:
    from shardir.frontend.visualize import (
        visualize_array_sharding as visualize_array_sharding,
        visualize_sharding as visualize_sharding,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
