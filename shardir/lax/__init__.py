"""Operations close to the IR: control flow, sharding constraints, general contractions.

The functions take and return arrays or tracers. Start with `shardir.frontend.lax.api`, which
imports the implementations; this module loads it on first use.
"""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_module

if TYPE_CHECKING:
    from shardir.frontend.lax.api import *
else:
    __getattr__, __dir__ = lazy_module(__name__, "shardir.frontend.lax.api")
