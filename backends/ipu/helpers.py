"""The table of C++ helper functions that emitted programs contain if they use them.

Each is a short sequence of Poplar and poplibs calls.
"""

from collections.abc import Iterable, Mapping

from shardir.backends.ipu.helper import Helper
from shardir.backends.ipu.helpers_of_data import DATA
from shardir.backends.ipu.helpers_of_numbers import NUMBERS
from shardir.backends.ipu.helpers_of_rings import RINGS

HELPERS: Mapping[str, Helper] = {**DATA, **NUMBERS, **RINGS}


def chosen(names: Iterable[str]) -> list[str]:
    """Return the texts of helpers and of their dependencies, dependencies first."""
    found: dict[str, None] = {}

    def visit(name: str) -> None:
        for used in HELPERS[name].uses:
            visit(used)
        found[name] = None

    wanted = set(names)
    for name in HELPERS:
        if name in wanted:
            visit(name)
    types = [name for name in found if name[0].isupper()]
    functions = [name for name in found if name not in types]
    return [HELPERS[name].text.strip("\n") for name in (*types, *functions)]
