"""Taylor-mode differentiation."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE = {"shardir.frontend.transforms.jet": ("jet",)}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.frontend.transforms.jet import jet as jet
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
