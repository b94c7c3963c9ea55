"""`custom_partitioning` and its sharding rules, under their path in JAX."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE = {
    "shardir.frontend.custom_partitioning.custom_partitioning": ("custom_partitioning",),
    "shardir.frontend.custom_partitioning.sdy_sharding_rule": (
        "BATCHING",
        "ArrayMapping",
        "CompoundFactor",
        "SdyShardingRule",
    ),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.frontend.custom_partitioning.custom_partitioning import (
        custom_partitioning as custom_partitioning,
    )
    from shardir.frontend.custom_partitioning.sdy_sharding_rule import (
        BATCHING as BATCHING,
        ArrayMapping as ArrayMapping,
        CompoundFactor as CompoundFactor,
        SdyShardingRule as SdyShardingRule,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
