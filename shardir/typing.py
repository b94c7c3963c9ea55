"""Types for annotations of arguments that become arrays or element types."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE = {
    "shardir.frontend.arrays.array_types": ("ArrayLike", "DTypeLike"),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.frontend.arrays.array_types import ArrayLike as ArrayLike, DTypeLike as DTypeLike
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
