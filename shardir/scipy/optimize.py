"""Minimization of functions."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE: dict[str, tuple[str, ...]] = {
    "shardir.frontend.solvers.minimize": ("OptimizeResults", "minimize"),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.frontend.solvers.minimize import (
        OptimizeResults as OptimizeResults,
        minimize as minimize,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
