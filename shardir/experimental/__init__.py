"""Names under `shardir.experimental` for programs that follow older JAX tutorials.

Each module forwards names of `jax.experimental` to the current public names of shardir; it takes
and returns what those functions do. Start with `shard_map.py`.
"""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE: dict[str, tuple[str, ...]] = {
    "shardir.experimental.checkify": (),
    "shardir.experimental.custom_partitioning": (),
    "shardir.experimental.jet": (),
    "shardir.experimental.maps": (),
    "shardir.experimental.mesh_utils": (),
    "shardir.experimental.multihost_utils": (),
    "shardir.experimental.ode": (),
    "shardir.experimental.pjit": (),
    "shardir.experimental.shard_map": (),
    "shardir.frontend.dispatch.callbacks": ("io_callback",),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.experimental import (
        checkify as checkify,
        custom_partitioning as custom_partitioning,
        jet as jet,
        maps as maps,
        mesh_utils as mesh_utils,
        multihost_utils as multihost_utils,
        ode as ode,
        pjit as pjit,
        shard_map as shard_map,
    )
    from shardir.frontend.dispatch.callbacks import io_callback as io_callback
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
