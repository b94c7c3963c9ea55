"""Pytree functions under the names of `jax.tree_util`."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_module

if TYPE_CHECKING:
    from shardir.frontend.pytree.tree_util import *
else:
    __getattr__, __dir__ = lazy_module(__name__, "shardir.frontend.pytree.tree_util")
