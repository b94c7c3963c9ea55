"""NumPy's functions, for arrays that are spread over devices.

Who imports this face is going to call them, so that it does not wait for that: the first call of a
compiled function would pay for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from shardir._lazy import lazy_module

if TYPE_CHECKING:
    from shardir.frontend.numpy import *
    from shardir.frontend.numpy import (
        __array_api_version__ as __array_api_version__,
        __array_namespace_info__ as __array_namespace_info__,
    )
else:
    __getattr__, __dir__ = lazy_module(__name__, "shardir.frontend.numpy")
    import_module("shardir.frontend.numpy")
