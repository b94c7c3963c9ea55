"""Spatial transformations under SciPy's names.

The functions take and return arrays. Start with `transform.py`; the implementation is
`shardir.frontend.scipy.rotations`.
"""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE: dict[str, tuple[str, ...]] = {"shardir.scipy.spatial.transform": ()}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.scipy.spatial import transform as transform
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
