"""The lines at which MLIR text defines its values, for programs without debug locations."""

import re
from collections.abc import Mapping

from shardir.ir.module import Loc

_FUNCTION = re.compile(r'func\.func\s+(?:public\s+|private\s+)?@("[^"]*"|[\w.$-]+)')
_DEFINITION = re.compile(r"%[\w.$-]+(?=\s*:(?!:)|(?::\d+)?\s*=(?!=))")


def find_mlir_locations(text: str, file: str) -> Mapping[tuple[str, str], Loc]:
    """Return the locations by function name and `%x` for a value; the first definition counts."""
    result: dict[tuple[str, str], Loc] = {}
    function = ""
    for number, line in enumerate(text.splitlines(), 1):
        if head := _FUNCTION.search(line):
            function = head[1].strip('"')
        for match in _DEFINITION.finditer(line):
            place = Loc(file, number, match.start() + 1)
            result.setdefault((function, match[0]), place)
    return result
