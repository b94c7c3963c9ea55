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


@pytest.mark.parametrize(
    ("arguments", "passed"),
    [
        ([], 18),
        (["--long"], 58),
        (["test_it.py::test_sampled"], 40),
        (["test_it.py::test_long"], 1),
    ],
    ids=["all", "--long", "named sampled test", "named long test"],
)
def test_long_tests_run_with_long_or_by_name(
    pytester: pytest.Pytester, arguments: list[str], passed: int
) -> None:
    pytester.makepyfile(test_it=FILE)
    pytester.makeconftest(
        "from tests.conftest import pytest_addoption, pytest_collection_modifyitems\n"
        "def pytest_configure(config):\n"
        "    config.addinivalue_line('markers', 'long')\n"
        "    config.addinivalue_line('markers', 'sample(n)')\n"
    )
    result = pytester.inline_run("-p", "no:cacheprovider", *arguments)
    assert (
        len(result.getpasses() if hasattr(result, "getpasses") else result.listoutcomes()[0])
        == passed
    )
