"""Rotations, and their interpolation."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_module

if TYPE_CHECKING:
    from shardir.frontend.scipy.rotations import *
else:
    __getattr__, __dir__ = lazy_module(__name__, "shardir.frontend.scipy.rotations")
