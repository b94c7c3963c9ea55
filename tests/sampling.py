"""Run a sample of the parametrizations of expensive tests, and all of them with `--long`.

`@pytest.mark.sample(3)` (or `pytestmark` for the functions of a file) states that `make test` runs
about one of three parametrizations of each function. The choice depends only on the names of the
tests, so that all processes and machines run the same ones. Where a function is parametrized
several times, each value of the short parametrizations (dtypes, layouts) occurs in a chosen test.
`sample(3, kind=function)` chooses at least one test of each kind as well, such as one of each
operation; `function` returns the kind, given the values of all parameters by name.
`@pytest.mark.long` states that only `--long` runs a test.
"""

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import groupby
from typing import Any

import pytest

MAX_COVERED_VALUES = 16
"""Each value of a parametrization with at most so many values occurs in the sample."""


def chosen_cases(
    cases: Sequence[tuple[str, Sequence[Hashable]]],
    one_of: int,
    kinds: Sequence[Hashable] | None = None,
) -> list[bool]:
    """Return which cases of one function are in the sample.

    Each case has a name and its value of each parametrization of the function. With one
    parametrization each case has a value of its own, and about one of `one_of` cases is chosen; at
    least the first one is. With several, further cases are chosen until each value of each
    parametrization of at most `MAX_COVERED_VALUES` values occurs. So is a case whose kind occurs in
    no chosen case, if `kinds` states the kind of each one.
    """
    chosen = _cases_with_all_values(cases, one_of)
    seen = {kind for kind, is_chosen in zip(kinds or [], chosen, strict=False) if is_chosen}
    for number, kind in enumerate(kinds or []):
        if kind not in seen:
            chosen[number] = True
            seen.add(kind)
    return chosen


def _cases_with_all_values(
    cases: Sequence[tuple[str, Sequence[Hashable]]], one_of: int
) -> list[bool]:
    columns = list(zip(*(values for _, values in cases), strict=True))
    covered = {
        position
        for position, column in enumerate(columns)
        if len(columns) > 1 and len(set(column)) <= MAX_COVERED_VALUES
    }
    chosen = [_number_of(name) % one_of == 0 for name, _ in cases]
    if not any(chosen):
        chosen[0] = True
    seen = {
        (position, value)
        for (_, values), is_chosen in zip(cases, chosen, strict=True)
        if is_chosen
        for position, value in enumerate(values)
    }
    missing = [{(p, values[p]) for p in covered} - seen for _, values in cases]
    while any(missing):
        number = max(range(len(cases)), key=lambda each: len(missing[each]))
        chosen[number] = True
        found = set(missing[number])
        for each in missing:
            each -= found
    return chosen


def deselect_long_tests(items: list[pytest.Item]) -> list[pytest.Item]:
    """Remove from `items` the tests that only `--long` runs, and return them."""
    kept: list[pytest.Item] = []
    deselected: list[pytest.Item] = []
    for (_, mark), group in groupby(items, key=lambda item: (_function_of(item), _sample(item))):
        tests = list(group)
        chosen = [True] * len(tests)
        if mark is not None:
            cases = [(test.name, _values(test)) for test in tests]
            chosen = chosen_cases(cases, mark.args[0], _kinds(tests, mark))
        for test, is_chosen in zip(tests, chosen, strict=True):
            is_long = test.get_closest_marker("long") is not None
            (kept if is_chosen and not is_long else deselected).append(test)
    items[:] = kept
    return deselected


def _function_of(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _sample(item: pytest.Item) -> pytest.Mark | None:
    return item.get_closest_marker("sample")


def _kinds(tests: Sequence[pytest.Item], mark: pytest.Mark) -> list[Hashable] | None:
    """Return the kind of each test of a function, or `None` if its mark names no function."""
    kind_of: Callable[[Mapping[str, Any]], Hashable] | None = mark.kwargs.get("kind")
    if kind_of is None:
        return None
    return [kind_of(test.callspec.params) if hasattr(test, "callspec") else None for test in tests]


def _number_of(name: str) -> int:
    """Return a number that depends on the whole name.

    Remainders of a CRC are often equal for names that differ in one character only.
    """
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")


def _values(item: pytest.Item) -> list[Hashable]:
    """Return the identity of the values of each parametrization of a test."""
    assert isinstance(item, pytest.Function)
    if not hasattr(item, "callspec"):
        return []
    params: Mapping[str, Any] = item.callspec.params
    names = [mark.args[0] for mark in item.iter_markers("parametrize")]
    lists = [name.split(",") if isinstance(name, str) else name for name in names]
    return [tuple(id(params[name.strip()]) for name in each) for each in lists]
