"""NumPy's functions for sharded arrays.

The functions take and return arrays or tracers. `shardir.frontend.numpy.api` imports their
implementations.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_module

if TYPE_CHECKING:
    from shardir.frontend.numpy.api import *
    from shardir.frontend.numpy.api import (
        __array_api_version__ as __array_api_version__,
        __array_namespace_info__ as __array_namespace_info__,
    )
else:
    __getattr__, __dir__ = lazy_module(__name__, "shardir.frontend.numpy.api")
    # The first call of a compiled function would otherwise pay for the import.
    import_module("shardir.frontend.numpy.api")
