"""`pjit`, `AUTO` and `PartitionSpec` under their paths in older JAX versions."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE = {
    "shardir.frontend.dispatch.jit": ("pjit",),
    "shardir.frontend.planning.auto": ("AUTO",),
    "shardir.frontend.shardings.partition_spec": ("PartitionSpec",),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.frontend.dispatch.jit import pjit as pjit
    from shardir.frontend.planning.auto import AUTO as AUTO
    from shardir.frontend.shardings.partition_spec import PartitionSpec as PartitionSpec
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
