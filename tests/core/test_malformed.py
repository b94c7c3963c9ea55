"""Mutated texts raise errors of this library; a sample of `python -m tests.programs.mutations`."""

import pytest

from tests.programs.mutations import KINDS, case, fault

QUICK, LONG = 8, 400
"""Groups of texts."""
GROUP = 10


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "group" in metafunc.fixturenames:
        groups = LONG if metafunc.config.getoption("--long") else QUICK
        metafunc.parametrize("group", range(groups))


def test_mutated_text_raises_errors_of_this_library(group: int) -> None:
    for seed in range(group * GROUP, (group + 1) * GROUP):
        kind, text = case(seed)
        assert not fault(kind, text), (seed, kind, text)


@pytest.mark.parametrize("kind", KINDS)
def test_the_original_texts_are_valid(kind: str) -> None:
    _, texts = KINDS[kind]
    rights = [text for text in texts[:6] if not fault(kind, text)]
    assert len(rights) == len(texts[:6])


DIGITS = ("9" * 25, "9" * 5000, "²", "٣", "1_0", "+1", "0x7F", "1.5", "-1", "1 2", "")


@pytest.mark.parametrize("digits", DIGITS)
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("rule", "a (b c) -> a {b=N, c=2}"),
        ("rule", "...N i, ... j -> ...N i"),
        ("rule", "([i])->([i]) {i=N}"),
        ("IR", "mesh @m = [x=N]\n"),
        ("IR", "func @f(%a: f32[N]) -> (f32[N]) {\n  return %a\n}\n"),
        ("IR", "mesh @m = [x=8]\nfunc @f(%a: f32[8@x:(N)2]) -> (f32[8]) {\n  return %a\n}\n"),
        ("IR", "mesh @m = [x=8]\nfunc @f(%a: f32[8@x pN]) -> (f32[8]) {\n  return %a\n}\n"),
        ("pipeline", "fuse{most_operands=N}"),
        ("pipeline", "hierarchical-collectives{across=x:N}"),
    ],
)
def test_malformed_numbers(kind: str, text: str, digits: str) -> None:
    assert not fault(kind, text.replace("N", digits))


@pytest.mark.parametrize("digits", [*DIGITS, ",", "3, ,", "3  5", "[3]", "true"])
@pytest.mark.parametrize("place", ["3, 5, 7]]", "2x4xi64", '"a"=4', "8x4xf32>, ", "type = 1"])
def test_malformed_numbers_of_stablehlo(place: str, digits: str) -> None:
    _, texts = KINDS["StableHLO"]
    (manual,) = (text for text in texts if "replica_groups = dense<[[0, 2" in text)
    written = manual.replace(place, place.replace(next(filter(str.isdigit, place)), digits))
    assert not fault("StableHLO", written)
