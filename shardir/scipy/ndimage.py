"""Interpolation of arrays at any coordinates."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_module

if TYPE_CHECKING:
    from shardir.frontend.scipy.image_interpolation import *
else:
    __getattr__, __dir__ = lazy_module(__name__, "shardir.frontend.scipy.image_interpolation")
