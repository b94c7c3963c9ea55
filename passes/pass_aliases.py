"""Former names of passes, which pipelines accept for one more version.

`FORMER_NAMES` maps each former name to the current one. `current_name` is applied wherever a pass
is looked up by its name; dumps, errors and help texts show current names only.
"""

import sys
import warnings
from collections.abc import Mapping
from types import FrameType, MappingProxyType
from typing import Final

FORMER_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "combine": "combine-collectives",
        "delay-sums": "sink-reductions",
        "fill-rows": "fill-out-of-bounds",
        "fold-sums": "fold-reductions",
        "join-moves": "merge-shifts",
        "join-reshards": "sink-reshards",
        "regather": "rematerialize-gathers",
        "reshard-exactly": "insert-explicit-reshards",
        "two-levels": "hierarchical-collectives",
        "uniform-control": "uniform-control-flow",
        "want-places": "annotate-partial-sorts",
    }
)


def current_name(name: str) -> str:
    """Return the current name of the pass `name`.

    Warns with a `DeprecationWarning` that states the current name if `name` is a former one. The
    warning points to the innermost caller outside of shardir.
    """
    current = FORMER_NAMES.get(name)
    if current is None:
        return name
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and _is_in_package(frame):
        frame, level = frame.f_back, level + 1
    warnings.warn(
        f"the pass {name!r} is now called {current!r}; write {current!r}, "
        "the former name will be removed in the next version",
        DeprecationWarning,
        stacklevel=level,
    )
    return current


def _is_in_package(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "shardir"
