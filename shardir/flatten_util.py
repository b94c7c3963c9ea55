"""Conversion between pytrees of arrays and one vector."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_module

if TYPE_CHECKING:
    from shardir.frontend.pytree.flatten_util import *
else:
    __getattr__, __dir__ = lazy_module(__name__, "shardir.frontend.pytree.flatten_util")
