"""`shard_map`, where older programs import it from."""

from typing import TYPE_CHECKING

from shardir._lazy import lazy_names

TABLE = {"shardir.frontend.shard_mapping": ("shard_map",)}
"""Where each public name is defined."""

if TYPE_CHECKING:
    from shardir.frontend.shard_mapping import shard_map as shard_map
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
