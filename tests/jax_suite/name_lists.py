"""Lists of names with headings: the counted tests of a file, and reasons of failures."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

HERE = Path(__file__).parent


def _read_list(path: Path) -> Iterator[tuple[str, str]]:
    """Return (heading, name) for every name of a list; an empty list if there is no file."""
    heading = ""
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        if line.startswith(" "):
            yield heading, line.strip()
        else:
            heading = line.removesuffix(":")


def counted(file: str, path: Path) -> Callable[[str], bool] | None:
    """Return whether the instance `Class.test` belongs to a counted method; `None` without a list.

    Counted methods need only public names, no text of another compiler, and no types with
    shardings.
    """
    chosen = set(_read_list(HERE / "counted" / f"{file}.txt"))
    if not chosen:
        return None
    methods = re.findall(r"^  def (test\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE)
    # The cache of `re` has fewer entries than a file has methods.
    longest_first = sorted(methods, key=len, reverse=True)
    patterns = {method: re.compile(rf"{method}(?:[^a-z]|$)") for method in longest_first}

    def counts(name: str) -> bool:
        kind, _, instance = name.partition(".")
        of = next((method for method in patterns if patterns[method].match(instance)), None)
        return of is not None and (kind, of) in chosen

    return counts


def reasons(file: str) -> list[tuple[str, str]]:
    """Return (pattern, reason) for the known failures."""
    return [(name, told) for told, name in _read_list(HERE / "reasons" / f"{file}.txt")]


def unexplained(lost: Iterable[str], known: Iterable[tuple[str, str]]) -> list[str]:
    """Return the failures without a reason."""
    patterns = [pattern for pattern, _ in known]
    return [name for name in lost if not any(fnmatchcase(name, each) for each in patterns)]


def outdated(
    passing: Iterable[str], lost: Mapping[str, str], known: Iterable[tuple[str, str]]
) -> list[str]:
    """Return passing tests with a reason, and patterns that match no failure."""
    found = []
    good = list(passing)
    for pattern, _ in known:
        found += [name for name in good if fnmatchcase(name, pattern)]
        if not any(fnmatchcase(name, pattern) for name in (*lost, *good)):
            found.append(pattern)
    return found
