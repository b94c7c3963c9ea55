"""Shardy's test files: programs, and the expected result of each function in comments.

A file is split at `// -----`. Comments that begin with a CHECK word are FileCheck's; consecutive
ones belong to the function named by the last CHECK-LABEL. CHECK-SAME continues the previous line.
"""

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from shardir.stablehlo.reader import split_modules

_CHECK = re.compile(r"^\s*//\s*CHECK(-[A-Z]+)?(\{LITERAL\})?:\s?(.*)$")
_FUNCTION = re.compile(r"func(?:\.func)?\s+(?:public |private |nested )?@([\w$.-]+)")
_LABEL = re.compile(r"@?([\w$.-]+)")
_DEFINED = re.compile(r"^\s*func\.func\s+(?:public |private |nested )?@([\w$.-]+)", re.MULTILINE)


class Check(NamedTuple):
    """One logical line: `word` is "", NEXT, NOT, DAG or LABEL."""

    word: str
    text: str
    line: int


@dataclass
class Case:
    """One function, and its CHECK lines, the label first."""

    file: str
    name: str
    part: str
    checks: list[Check] = field(default_factory=list)


def cases_of(text: str, file: str) -> list[Case]:
    """Return the functions of a file that have CHECK lines, in reading order."""
    cases: list[Case] = []
    runs = [line for line in text.splitlines() if line.startswith("// RUN:")]
    splits = not runs or any("-split-input-file" in run for run in runs)
    for part in split_modules(text) if splits else [text]:
        defined = _DEFINED.findall(part)
        case: Case | None = None
        for check in checks_of(part):
            match = _FUNCTION.search(check.text) or (
                _LABEL.match(check.text) if check.word == "LABEL" else None
            )
            names = check.word in ("LABEL", "") and match is not None
            if names and match is not None and (check.word == "LABEL" or match[1] in defined):
                longer = [name for name in defined if name.startswith(match[1])]
                name = match[1] if match[1] in defined or not longer else longer[0]
                case = Case(file, name, part)
                cases.append(case)
            if case is not None:
                case.checks.append(check)
    return cases


def checks_of(part: str) -> list[Check]:
    """Return the logical lines of CHECK comments."""
    checks: list[Check] = []
    for number, line in enumerate(part.splitlines(), 1):
        match = _CHECK.match(line)
        if match is None:
            continue
        word, literal, text = (match[1] or "")[1:], match[2], match[3]
        if not literal:
            text = text.replace("{{\\[}}", "[").replace("{{\\]}}", "]")
        if word == "SAME" and checks:
            checks[-1] = checks[-1]._replace(text=f"{checks[-1].text} {text.strip()}")
        else:
            checks.append(Check(word, text.strip(), number))
    return checks
