"""Former names of passes, which pipelines accept for one more version.

`FORMER_NAMES` maps each former name to the current one. `current_name` is applied wherever a pass
is looked up by its name; dumps, errors and help texts show current names only.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from shardir.caller_warnings import warn_caller

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
    warn_caller(
        f"the pass {name!r} is now called {current!r}; write {current!r}, "
        "the former name will be removed in the next version",
        DeprecationWarning,
    )
    return current
