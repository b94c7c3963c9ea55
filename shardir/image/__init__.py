"""Resampling of images.

The functions take and return arrays. The implementation is
`shardir.frontend.scipy.image_resampling`.
"""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_module

if TYPE_CHECKING:
    from shardir.frontend.scipy.image_resampling import *
else:
    __getattr__, __dir__ = lazy_module(__name__, "shardir.frontend.scipy.image_resampling")
