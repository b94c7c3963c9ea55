"""Samples of parametrizations contain about one of n, and each value of each parametrization."""

from itertools import product

import pytest

from tests.sampling import chosen_cases

pytest_plugins = ["pytester"]

FILE = """
import pytest

@pytest.mark.sample(4)
@pytest.mark.parametrize("a", range(40))
def test_sampled(a): pass

@pytest.mark.sample(1000, kind=lambda values: values["a"] % 3)
@pytest.mark.parametrize("a", range(12))
def test_sampled_kinds(a): pass

@pytest.mark.long
def test_long(): pass

@pytest.mark.parametrize("a", range(5))
def test_complete(a): pass
"""


@pytest.mark.parametrize("one_of", [2, 3, 5])
def test_about_one_of_n_cases_is_chosen(one_of: int) -> None:
    chosen = chosen_cases([(f"test[{number}]", [number]) for number in range(600)], one_of)
    assert 0.8 < chosen.count(True) * one_of / 600 < 1.2


def test_the_first_case_is_chosen_if_no_other_one_is() -> None:
    assert chosen_cases([("test[a]", [0])], 1000) == [True]
    assert chosen_cases([("test[a]", [0]), ("test[b]", [1])], 1000) == [True, False]


def test_the_choice_of_a_case_depends_on_its_name_only() -> None:
    cases = [(f"test[{number}]", [number]) for number in range(90)]
    assert chosen_cases(cases[30:], 3) == chosen_cases(cases, 3)[30:]


def test_each_value_of_short_parametrizations_occurs() -> None:
    values = product(range(6), range(16), range(17))
    cases = [(f"test[{a}-{b}-{c}]", [a, b, c]) for a, b, c in values]
    chosen = [
        values
        for (_, values), is_chosen in zip(cases, chosen_cases(cases, 200), strict=True)
        if is_chosen
    ]
    assert {a for a, _, _ in chosen} == set(range(6))
    assert {b for _, b, _ in chosen} == set(range(16))
    assert len({c for _, _, c in chosen}) < 17
    assert len(chosen) < 30


def test_a_case_of_each_kind_is_chosen() -> None:
    cases = [(f"test[{number}]", [number]) for number in range(100)]
    kinds = [number // 10 for number in range(100)]
    chosen = chosen_cases(cases, 1000, kinds)
    assert [kinds[number] for number in range(100) if chosen[number]] == list(range(10))
    assert sum(chosen_cases(cases, 2, kinds)) == sum(chosen_cases(cases, 2))


PRODUCT = """
import pytest

@pytest.mark.sample(1000)
@pytest.mark.parametrize("a", range(4))
@pytest.mark.parametrize("b", ["x", "y", "z"])
@pytest.mark.parametrize(("c", "d"), [(c, "d") for c in range(6)])
def test_sampled_products(a, b, c, d): pass
"""
CONFTEST = """
from tests.conftest import pytest_addoption, pytest_collection_modifyitems
def pytest_configure(config):
    config.addinivalue_line("markers", "long")
    config.addinivalue_line("markers", "sample(n)")
"""


def passed_tests(pytester: pytest.Pytester, text: str, *arguments: str) -> list[str]:
    """Return the names of the tests of a file that pass."""
    pytester.makepyfile(test_it=text)
    pytester.makeconftest(CONFTEST)
    result = pytester.inline_run("-p", "no:cacheprovider", *arguments)
    return [report.nodeid.partition("::")[2] for report in result.listoutcomes()[0]]


@pytest.mark.parametrize(
    ("arguments", "passed"),
    [
        ([], 22),
        (["--long"], 58),
        (["test_it.py::test_sampled"], 40),
        (["test_it.py::test_long"], 1),
    ],
    ids=["all", "--long", "named sampled test", "named long test"],
)
def test_long_tests_run_with_long_or_by_name(
    pytester: pytest.Pytester, arguments: list[str], passed: int
) -> None:
    assert len(passed_tests(pytester, FILE, *arguments)) == passed


def test_each_value_of_several_parametrizations_occurs(pytester: pytest.Pytester) -> None:
    passed = passed_tests(pytester, PRODUCT)
    values = [name.partition("[")[2].rstrip("]").split("-") for name in passed]
    assert {c for c, *_ in values} == set("012345")
    assert {b for _, _, b, _ in values} == {"x", "y", "z"}
    assert {a for *_, a in values} == set("0123")
    assert len(values) <= 9
