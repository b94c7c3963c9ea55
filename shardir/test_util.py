"""Comparison of derivatives with finite differences."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_module

if TYPE_CHECKING:
    from shardir.frontend.transforms.derivative_checks import *
else:
    __getattr__, __dir__ = lazy_module(__name__, "shardir.frontend.transforms.derivative_checks")
