"""Integration of ordinary differential equations."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE = {"shardir.frontend.solvers.odeint": ("odeint",)}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.frontend.solvers.odeint import odeint as odeint
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
