"""Neural network functions: activations, softmax, attention.

The functions take and return arrays or tracers. Start with `shardir.frontend.nn.api`, which imports
the implementations; this module loads it on first use.
"""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_module

if TYPE_CHECKING:
    from shardir.frontend.nn.api import *
else:
    __getattr__, __dir__ = lazy_module(__name__, "shardir.frontend.nn.api")
