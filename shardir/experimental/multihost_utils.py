"""Functions over the arrays of all processes, under JAX's names."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE = {
    "shardir.frontend.distributed.liveness": ("live_devices", "reached_preemption_sync_point"),
    "shardir.frontend.distributed.multihost": (
        "assert_equal",
        "broadcast_one_to_all",
        "global_array_to_host_local_array",
        "host_local_array_to_global_array",
        "process_allgather",
        "sync_global_devices",
    ),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.frontend.distributed.liveness import (
        live_devices as live_devices,
        reached_preemption_sync_point as reached_preemption_sync_point,
    )
    from shardir.frontend.distributed.multihost import (
        assert_equal as assert_equal,
        broadcast_one_to_all as broadcast_one_to_all,
        global_array_to_host_local_array as global_array_to_host_local_array,
        host_local_array_to_global_array as host_local_array_to_global_array,
        process_allgather as process_allgather,
        sync_global_devices as sync_global_devices,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
