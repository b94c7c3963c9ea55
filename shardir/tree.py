"""Nested containers of arrays: flatten, map, put together again."""

from typing import TYPE_CHECKING

from shardir._lazy import lazy_module

if TYPE_CHECKING:
    from shardir.frontend.tree import *
else:
    __getattr__, __dir__ = lazy_module(__name__, "shardir.frontend.tree")
