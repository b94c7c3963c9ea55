"""Exchange of arrays with other libraries without copies (DLPack)."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE = {
    "shardir.frontend.arrays.dlpack": ("is_supported_dtype",),
    "shardir.frontend.numpy.creation.file_io": ("from_dlpack",),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.frontend.arrays.dlpack import is_supported_dtype as is_supported_dtype
    from shardir.frontend.numpy.creation.file_io import from_dlpack as from_dlpack
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
