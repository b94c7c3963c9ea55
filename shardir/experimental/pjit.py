"""`pjit` and `PartitionSpec` under their paths in older JAX versions."""

from typing import TYPE_CHECKING

from shardir._lazy import lazy_names

TABLE = {
    "shardir.frontend.older_jit": ("pjit",),
    "shardir.frontend.partition_spec": ("PartitionSpec",),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.frontend.older_jit import pjit as pjit
    from shardir.frontend.partition_spec import PartitionSpec as PartitionSpec
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
