"""Which tests of a file count, and why some of them do not pass: lists of names with headings.

SomeTest:               a class, in counted/FILE.txt       a reason, in reasons/FILE.txt
    test_this                a method of it                    an instance: SomeTest.test_this3
    test_that                                                  or a pattern: SomeTest.test_that*
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

HERE = Path(__file__).parent


def _listed(path: Path) -> Iterator[tuple[str, str]]:
    """(heading, name) for every name of a list; nothing where there is no such file."""
    heading = ""
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        if line.startswith(" "):
            yield heading, line.strip()
        else:
            heading = line.removesuffix(":")


def counted(file: str, path: Path) -> Callable[[str], bool] | None:
    """Whether the instance called `Class.test` is of a method that counts; `None` without a list.

    They are those that need nothing but public names, no wording of a compiler's and no types that
    carry shardings.
    """
    chosen = set(_listed(HERE / "counted" / f"{file}.txt"))
    if not chosen:
        return None
    methods = sorted(
        re.findall(r"^  def (test\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE), key=len
    )

    def counts(name: str) -> bool:
        kind, _, method = name.partition(".")
        of = [m for m in methods if re.match(rf"{m}(?:[^a-z]|$)", method)]
        return bool(of) and (kind, of[-1]) in chosen

    return counts


def reasons(file: str) -> list[tuple[str, str]]:
    """(pattern, reason) for what is known not to pass."""
    return [(name, told) for told, name in _listed(HERE / "reasons" / f"{file}.txt")]


def unexplained(lost: Iterable[str], known: Iterable[tuple[str, str]]) -> list[str]:
    """Those that do not pass without a reason being told."""
    patterns = [pattern for pattern, _ in known]
    return [name for name in lost if not any(fnmatchcase(name, each) for each in patterns)]


def outdated(
    passing: Iterable[str], lost: Mapping[str, str], known: Iterable[tuple[str, str]]
) -> list[str]:
    """What passes though a reason tells why it does not; and patterns that no failure is of."""
    found = []
    good = list(passing)
    for pattern, _ in known:
        found += [name for name in good if fnmatchcase(name, pattern)]
        if not any(fnmatchcase(name, pattern) for name in (*lost, *good)):
            found.append(pattern)
    return found
