"""Checkpoints: all processes save their shards of arrays, which any mesh can load."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE = {
    "shardir.frontend.checkpoint.load": ("exists", "load"),
    "shardir.frontend.checkpoint.save": ("save",),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.frontend.checkpoint.load import exists as exists, load as load
    from shardir.frontend.checkpoint.save import save as save
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
