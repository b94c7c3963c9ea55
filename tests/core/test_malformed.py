"""Mutated texts raise errors of this library; a sample of `python -m tests.programs.mutations`."""

import re

import pytest

from shardir.errors import ParseError
from shardir.stablehlo.reader import read
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


JOINT = """\
func.func @f(%x: tensor<8xf32>, %y: tensor<8xf32>, %z: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  %0:2 = "stablehlo.reduce"(OPERANDS) <{dimensions = array<i64: DIMS>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<f32>, %d: tensor<f32>):
    %1 = stablehlo.multiply %a, %d : tensor<f32>
    %2 = stablehlo.add %b, %c : tensor<f32>
    stablehlo.return %1, %2 : tensor<f32>, tensor<f32>
  }) : (TYPES) -> (tensor<f32>, tensor<f32>)
  return %0#0, %0#1 : tensor<f32>, tensor<f32>
}
"""


@pytest.mark.parametrize(
    ("operands", "dims", "says"),
    [
        ("%x, %y, %z, %z", "1", "f32[8] has no dimension 1"),
        ("%x, %y, %z, %z", "-1", "f32[8] has no dimension -1"),
        ("%x, %y, %z, %z", "0, 0", "stablehlo.reduce lists dimension 0 twice"),
        ("", "0", "stablehlo.reduce takes operands and as many initial values, got 0 operands"),
        ("%x, %y, %z", "0",
         "stablehlo.reduce takes operands and as many initial values, got 3 operands"),
    ],
)  # fmt: skip
def test_dimensions_of_a_joint_reduction(operands: str, dims: str, says: str) -> None:
    types = operands.replace("%x", "tensor<8xf32>").replace("%y", "tensor<8xf32>")
    text = JOINT.replace("OPERANDS", operands).replace("DIMS", dims)
    with pytest.raises(ParseError) as caught:
        read(text.replace("TYPES", types.replace("%z", "tensor<f32>")))
    assert str(caught.value).startswith(f"{says}\n --> <text>:2:10\n")


NUMBER = re.compile(r"(\w+) = ((?:array<i64: |dense<\[*|\[)?)(-?\d+)")


def test_numbers_of_every_attribute() -> None:
    """Each number of each attribute of each operation, out of range."""
    _, texts = KINDS["StableHLO"]
    tried = set()
    for text in texts:
        for number in NUMBER.finditer(text):
            operation = re.findall(r"(?:stablehlo|chlo|sdy)\.\w+", text[: number.start()])[-1:]
            if (*operation, number[1]) in tried:
                continue
            tried.add((*operation, number[1]))
            for other in ("7", "-1"):
                made = text[: number.start(3)] + other + text[number.end(3) :]
                assert not fault("StableHLO", made), made
    assert len(tried) > 40
