"""Guards of a file, and the functions without them."""

from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from tests.mutation.guards import guards, mutated_codes

SOURCE = """\
LIMIT = 0 or 3


def clipped(x):
    if x is None:
        return None
    if x < 0 and x > -5 and x != -2:
        x = 3
    for i in range(9):
        if i > x or i > LIMIT:
            break
    return [i for i in range(i) if i and i != 2]


def chosen(x):
    if x:
        return 1
    else:
        return 2
"""
GUARDS = [
    (5, "if x is None: return None"),
    (7, "and: x < 0"),
    (7, "and: x > -5"),
    (7, "and: x != -2"),
    (10, "if i > x or i > LIMIT: break"),
    (10, "or: i > x"),
    (10, "or: i > LIMIT"),
    (12, "and: i"),
    (12, "and: i != 2"),
]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.py"
    path.write_text(SOURCE, "utf-8")
    return path


def test_guards_are_exits_and_operands_in_functions(source: Path) -> None:
    assert [(each.line, each.text) for each in guards(source)] == GUARDS


def test_lines_state_what_runs_if_a_guard_has_an_effect(source: Path) -> None:
    assert [sorted(each.lines) for each in guards(source)][:2] == [[6], [7]]


@pytest.mark.parametrize(
    ("text", "argument", "before", "after"),
    [
        ("if x is None: return None", None, None, TypeError),
        ("and: x < 0", 2, [1], [1, 3]),
        ("and: x > -5", -7, [], [1, 3]),
        ("and: x != -2", -2, [], [1, 3]),
        ("if i > x or i > LIMIT: break", 3, [1, 3], [1, 3, 4, 5, 6, 7]),
        ("or: i > x", 1, [1], [1, 3]),
        ("or: i > LIMIT", 5, [1, 3], [1, 3, 4, 5]),
        ("and: i", 3, [1, 3], [0, 1, 3]),
        ("and: i != 2", 3, [1, 3], [1, 2, 3]),
    ],
)
def test_a_mutant_computes_without_the_guard(
    source: Path, text: str, argument: Any, before: Any, after: Any
) -> None:
    namespace: dict[str, Any] = {}
    exec(compile(SOURCE, str(source), "exec"), namespace)
    function = namespace["clipped"]
    assert function(argument) == before
    (guard,) = (each for each in guards(source) if each.text == text)
    code = dict(mutated_codes(guard))[function.__code__]
    changed = FunctionType(code, namespace)
    if after is TypeError:
        with pytest.raises(TypeError, match="'<' not supported"):
            changed(argument)
    else:
        assert changed(argument) == after
