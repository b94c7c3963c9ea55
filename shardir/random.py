"""Random numbers from explicit keys; the bits do not depend on the sharding."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_module

if TYPE_CHECKING:
    from shardir.frontend.random.api import *
else:
    __getattr__, __dir__ = lazy_module(__name__, "shardir.frontend.random.api")
