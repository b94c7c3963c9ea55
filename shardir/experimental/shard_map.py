"""`shard_map` under its path in older JAX versions."""

from typing import TYPE_CHECKING

from shardir._lazy import lazy_names

TABLE = {"shardir.frontend.shard_mapping": ("shard_map",)}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.frontend.shard_mapping import shard_map as shard_map
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
