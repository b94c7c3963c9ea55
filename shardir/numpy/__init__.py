"""NumPy's functions for sharded arrays.

The functions take and return arrays or tracers. Start with `shardir.frontend.numpy.api`, which
imports the implementations. This module imports it immediately, because the first call of a
compiled function would otherwise pay for the import.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from shardir._lazy import lazy_module

if TYPE_CHECKING:
    from shardir.frontend.numpy.api import *
    from shardir.frontend.numpy.api import (
        __array_api_version__ as __array_api_version__,
        __array_namespace_info__ as __array_namespace_info__,
    )
else:
    __getattr__, __dir__ = lazy_module(__name__, "shardir.frontend.numpy.api")
    import_module("shardir.frontend.numpy.api")
