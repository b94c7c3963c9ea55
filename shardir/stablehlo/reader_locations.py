"""Where operations of MLIR text come from."""

import re

from shardir.ir import Loc

_PLACE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d{1,9}):(\d{1,9})')
_ALIAS = re.compile(r"#[\w$.]+")


class Locations:
    """Finds the user's line in a location, through aliases of the end of the file."""

    def __init__(self) -> None:
        self.aliases: dict[str, str] = {}
        self._known: dict[str, Loc | None] = {}

    def read(self, text: str) -> Loc | None:
        """The first file and line that a location names, the innermost call first."""
        if text not in self._known:
            self._known[text] = None  # an alias that names itself leads nowhere
            place = _PLACE.search(text)
            if place:
                self._known[text] = Loc(place[1], int(place[2]), int(place[3]))
            else:
                found = map(self.alias, _ALIAS.findall(text))
                self._known[text] = next((loc for loc in found if loc is not None), None)
        return self._known[text]

    def alias(self, name: str) -> Loc | None:
        return self.read(self.aliases[name]) if name in self.aliases else None
