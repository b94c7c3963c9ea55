"""Weight initializers: functions of a key, a shape and a dtype."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_module

if TYPE_CHECKING:
    from shardir.frontend.nn.initializers import *
else:
    __getattr__, __dir__ = lazy_module(__name__, "shardir.frontend.nn.initializers")
