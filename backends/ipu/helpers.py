"""Functions in C++ that an emitted program carries along where it uses them.

Each is a few lines around calls of Poplar and poplibs, so that what is said often is said once.
"""

from collections.abc import Iterable, Mapping

from shardir.backends.ipu.helper import Helper
from shardir.backends.ipu.helpers_of_data import DATA
from shardir.backends.ipu.helpers_of_numbers import NUMBERS
from shardir.backends.ipu.helpers_of_rings import RINGS

HELPERS: Mapping[str, Helper] = {**DATA, **NUMBERS, **RINGS}


def chosen(names: Iterable[str]) -> list[str]:
    """The texts of functions and of what they use, each after what it uses."""
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
