"""Clustering under SciPy's names.

The functions take and return arrays. Start with `vq.py`; the implementation is
`shardir.frontend.scipy.vector_quantization`.
"""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE: dict[str, tuple[str, ...]] = {"shardir.scipy.cluster.vq": ()}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.scipy.cluster import vq as vq
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
