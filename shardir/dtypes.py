"""Element types: their limits, their families, and what stands for what."""

from typing import TYPE_CHECKING

from shardir._lazy import lazy_module

if TYPE_CHECKING:
    from shardir.frontend.dtypes import *
else:
    __getattr__, __dir__ = lazy_module(__name__, "shardir.frontend.dtypes")
