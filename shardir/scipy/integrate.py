"""Integration of sampled functions."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE: dict[str, tuple[str, ...]] = {
    "shardir.frontend.numpy.reductions.cumulative": ("trapezoid",),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.frontend.numpy.reductions.cumulative import trapezoid as trapezoid
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
