"""Source locations of operations in MLIR text."""

import re

from shardir.ir.module import Loc

_FILE_LINE_COLUMN = re.compile(r'"((?:[^"\\]|\\.)*)":(\d{1,9}):(\d{1,9})')
_ALIAS = re.compile(r"#[\w$.]+")


class Locations:
    """Resolves locations, including aliases that are defined at the end of the file."""

    def __init__(self) -> None:
        self.aliases: dict[str, str] = {}
        self._known: dict[str, Loc | None] = {}

    def read(self, text: str) -> Loc | None:
        """Return the first file and line in a location, the innermost call first."""
        if text not in self._known:
            self._known[text] = None  # A recursive alias has no location.
            place = _FILE_LINE_COLUMN.search(text)
            if place:
                self._known[text] = Loc(place[1], int(place[2]), int(place[3]))
            else:
                found = map(self.alias, _ALIAS.findall(text))
                self._known[text] = next((loc for loc in found if loc is not None), None)
        return self._known[text]

    def alias(self, name: str) -> Loc | None:
        return self.read(self.aliases[name]) if name in self.aliases else None
