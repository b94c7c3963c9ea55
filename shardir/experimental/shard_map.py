"""`shard_map` under its path in older JAX versions."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE = {"shardir.frontend.transforms.manual.shard_map": ("shard_map",)}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.frontend.transforms.manual.shard_map import shard_map as shard_map
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
