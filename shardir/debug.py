"""Debugging: printing, callbacks and breakpoints in programs, and visualization of shardings."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE = {
    "shardir.frontend.dispatch.debugging": (
        "breakpoint",
        "callback",
        "inspect_array_sharding",
        "log",
        "print",
        "visualize_array_sharding",
    ),
    "shardir.frontend.visualize": ("visualize_sharding",),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.frontend.dispatch.debugging import (
        breakpoint as breakpoint,
        callback as callback,
        inspect_array_sharding as inspect_array_sharding,
        log as log,
        print as print,
        visualize_array_sharding as visualize_array_sharding,
    )
    from shardir.frontend.visualize import visualize_sharding as visualize_sharding
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
