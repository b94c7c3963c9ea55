"""Sparse linear algebra under SciPy's names.

The functions take linear operators and arrays and return arrays. Start with `linalg.py`; the
implementation is `shardir.frontend.scipy.sparse_linalg`.
"""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE: dict[str, tuple[str, ...]] = {"shardir.scipy.sparse.linalg": ()}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.scipy.sparse import linalg as linalg
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
