"""The guards of a file, the functions without them, and the tests in which they decide."""

from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from tests.mutation.guards import find_guards
from tests.mutation.mutants import install, mutated_codes, recording_codes, report_guards

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


def named(x):
    if (y := x * 2) > 9:
        return -1
    return y and (z := y + 1) and z * 2


def default(x, y):
    return x or y


def counter(limit):
    def is_over(n):
        if n > limit:
            return True
        return False

    return is_over
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
    (23, "if (y := (x * 2)) > 9: return -1"),
    (25, "and: y"),
    (25, "and: (z := (y + 1))"),
    (25, "and: z * 2"),
    (29, "or: x"),
    (29, "or: y"),
    (34, "if n > limit: return True"),
]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.py"
    path.write_text(SOURCE, "utf-8")
    return path


@pytest.fixture
def namespace(source: Path) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(SOURCE, str(source), "exec"), names)
    return names


def functions_of(namespace: dict[str, Any]) -> list[FunctionType]:
    return [each for each in namespace.values() if isinstance(each, FunctionType)]


def test_guards_are_exits_and_operands_in_functions(source: Path) -> None:
    assert [(each.line, each.text) for each in find_guards(source)] == GUARDS


@pytest.mark.parametrize(
    ("text", "call", "before", "after"),
    [
        ("if x is None: return None", "clipped(None)", None, TypeError),
        ("and: x < 0", "clipped(2)", [1], [1, 3]),
        ("and: x > -5", "clipped(-7)", [], [1, 3]),
        ("and: x != -2", "clipped(-2)", [], [1, 3]),
        ("if i > x or i > LIMIT: break", "clipped(3)", [1, 3], [1, 3, 4, 5, 6, 7]),
        ("or: i > x", "clipped(1)", [1], [1, 3]),
        ("or: i > LIMIT", "clipped(5)", [1, 3], [1, 3, 4, 5]),
        ("and: i", "clipped(3)", [1, 3], [0, 1, 3]),
        ("and: i != 2", "clipped(3)", [1, 3], [1, 2, 3]),
        ("if (y := (x * 2)) > 9: return -1", "named(7)", -1, 30),
        ("and: y", "named(0)", 0, 2),
        ("and: (z := (y + 1))", "named(-0.5)", 0.0, 0.0),
        ("and: z * 2", "named(2)", 10, 5),
        ("or: x", "default(1, 2)", 1, 2),
        ("or: y", "default(0, 2)", 2, 0),
        ("if n > limit: return True", "counter(3)(4)", True, False),
    ],
)
def test_a_mutant_computes_without_the_guard(
    source: Path, namespace: dict[str, Any], text: str, call: str, before: Any, after: Any
) -> None:
    assert eval(call, namespace) == before
    (guard,) = (each for each in find_guards(source) if each.text == text)
    assert install(mutated_codes(guard), functions_of(namespace)) == 1
    if after is TypeError:
        with pytest.raises(TypeError, match="'<' not supported"):
            eval(call, namespace)
    else:
        assert eval(call, namespace) == after


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("clipped(None)", ["if x is None: return None"]),
        (
            "clipped(2)",
            [
                "and: x < 0",
                "if i > x or i > LIMIT: break",
                "or: i > x",
                "and: i",
                "and: i != 2",
            ],
        ),
        ("named(7)", ["if (y := (x * 2)) > 9: return -1"]),
        ("named(0)", ["and: y"]),
        ("named(2)", ["and: z * 2"]),
        ("default(1, 2)", ["or: x"]),
        ("default(0, 2)", ["or: y"]),
        ("default(0, False)", []),
        ("counter(3)(4)", ["if n > limit: return True"]),
        ("counter(3)(2)", []),
    ],
)
def test_guards_that_decide_are_recorded(
    source: Path, namespace: dict[str, Any], call: str, expected: list[str]
) -> None:
    guards = find_guards(source)
    decided: set[int] = set()
    plain = eval(call, namespace)
    install(recording_codes(source, list(enumerate(guards))), functions_of(namespace))
    report: Callable[[int], None] = decided.add
    report_guards(report)
    assert eval(call, namespace) == plain
    assert [guards[at].text for at in sorted(decided)] == expected
