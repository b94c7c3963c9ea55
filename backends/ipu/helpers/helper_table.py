"""The table of C++ helper functions that emitted programs contain if they use them.

Each is a short sequence of Poplar and poplibs calls.
"""

from collections.abc import Iterable, Mapping

from shardir.backends.ipu.helpers.cpp_helper import CppHelper
from shardir.backends.ipu.helpers.data_helpers import DATA_HELPERS
from shardir.backends.ipu.helpers.numeric_helpers import NUMERIC_HELPERS
from shardir.backends.ipu.helpers.ring_helpers import RING_HELPERS

HELPERS: Mapping[str, CppHelper] = {**DATA_HELPERS, **NUMERIC_HELPERS, **RING_HELPERS}


def helper_texts(names: Iterable[str]) -> list[str]:
    """Return the texts of helpers and of their dependencies, dependencies first."""
    found: dict[str, None] = {}

    def visit(name: str) -> None:
        for used in HELPERS[name].uses:
            visit(used)
        found[name] = None

    requested = set(names)
    for name in HELPERS:
        if name in requested:
            visit(name)
    types = [name for name in found if name[0].isupper()]
    functions = [name for name in found if name not in types]
    return [HELPERS[name].text.strip("\n") for name in (*types, *functions)]
