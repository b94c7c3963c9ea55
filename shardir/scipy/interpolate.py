"""Interpolation on grids."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE: dict[str, tuple[str, ...]] = {
    "shardir.frontend.scipy.grid_interpolation": ("RegularGridInterpolator",),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.frontend.scipy.grid_interpolation import (
        RegularGridInterpolator as RegularGridInterpolator,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
