"""Tables of a report: records that others refer to by index, and source files."""

import linecache
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from shardir.frontend.report.records import AnnotationRecord, FileRecord, Location
from shardir.ir.location import is_cell
from shardir.ir.module import Loc
from shardir.passes.explain.reports import Annotation

Item = TypeVar("Item", bound=Hashable)


class Table(Generic[Item]):
    """Distinct items in the order of their first use."""

    def __init__(self) -> None:
        self._numbers: dict[Item, int] = {}

    def number(self, item: Item) -> int:
        """Return the index of an item, which is added if it is new."""
        return self._numbers.setdefault(item, len(self._numbers))

    @property
    def items(self) -> tuple[Item, ...]:
        return tuple(self._numbers)


class ReportTables:
    """The tables that several parts of a report share.

    `sources` are texts by file name, for programs that were not read from files.
    """

    def __init__(self, sources: Mapping[str, str] | None = None) -> None:
        self.sources = dict(sources or {})
        self._files: Table[str] = Table()
        self._annotations: Table[AnnotationRecord] = Table()
        self._known: dict[Annotation, int] = {}

    def location(self, loc: Loc | None) -> Location | None:
        return None if loc is None else (self._files.number(loc.file), loc.line, loc.column)

    def annotation(self, annotation: Annotation) -> int:
        result = self._known.get(annotation)
        if result is None:
            record = AnnotationRecord(
                annotation.subject.value,
                annotation.name,
                annotation.type,
                annotation.function,
                self.location(annotation.loc),
            )
            result = self._known[annotation] = self._annotations.number(record)
        return result

    def annotation_numbers(self, annotations: Iterable[Annotation]) -> tuple[int, ...]:
        return tuple(map(self.annotation, annotations))

    @property
    def annotations(self) -> tuple[AnnotationRecord, ...]:
        return self._annotations.items

    @property
    def files(self) -> tuple[FileRecord, ...]:
        """The source files, with the names under which the report shows them."""
        names = shortest_names(self._files.items)
        return tuple(
            FileRecord(name, self._read(file))
            for file, name in zip(self._files.items, names, strict=True)
        )

    def _read(self, file: str) -> str:
        if file in self.sources:
            return self.sources[file]
        if is_cell(file):
            return "".join(linecache.getlines(file))
        try:
            return Path(file).read_text(encoding="utf-8")
        except (OSError, ValueError):
            return ""


def shortest_names(paths: Iterable[str]) -> list[str]:
    """Return for each path the shortest end that no other path has.

    Reports thus do not depend on the folder in which a program is kept.
    """
    parts = [Path(path).parts for path in paths]
    names = []
    for mine in parts:
        count = 1
        others = [other for other in parts if other != mine]
        while count < len(mine) and any(other[-count:] == mine[-count:] for other in others):
            count += 1
        names.append("/".join(mine[-count:]))
    return names
