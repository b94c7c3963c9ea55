"""Multi-process programs: initialization, and arrays that are distributed over processes."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE = {
    "shardir.frontend.distributed.initialize": ("initialize", "is_initialized", "shutdown"),
    "shardir.frontend.distributed.processes": ("process_count", "process_index"),
    "shardir.frontend.distributed.gather_api": (
        "barrier",
        "from_callback",
        "from_process_local",
        "gather_to_all",
        "gather_to_root",
    ),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.frontend.distributed.gather_api import (
        barrier as barrier,
        from_callback as from_callback,
        from_process_local as from_process_local,
        gather_to_all as gather_to_all,
        gather_to_root as gather_to_root,
    )
    from shardir.frontend.distributed.initialize import (
        initialize as initialize,
        is_initialized as is_initialized,
        shutdown as shutdown,
    )
    from shardir.frontend.distributed.processes import (
        process_count as process_count,
        process_index as process_index,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
