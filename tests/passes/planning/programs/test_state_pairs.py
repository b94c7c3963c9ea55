"""Results that are the next value of an argument."""

import pytest

from shardir.passes.planning.programs.state_pairs import find_state_pairs
from shardir.text.parser import parse


def pairs_of(params: str, results: str, *lines: str, count: int | None = None) -> dict[int, int]:
    """Return the pairs of a function with these parameters, types of results and lines."""
    body = "\n".join(f"  {line}" for line in lines)
    text = f"mesh @m = [x=2]\nfunc @f({params}) -> ({results}) {{\n{body}\n}}\n"
    return find_state_pairs(parse(text).main, count)


def test_the_nearest_argument_is_the_state() -> None:
    lines = "%a = neg(%g) : f32[4]", "%b = add(%a, %w) : f32[4]", "return %b"
    assert pairs_of("%g: f32[4], %w: f32[4]", "f32[4]", *lines) == {0: 1}


def test_each_argument_is_the_state_of_one_result() -> None:
    """The second result is computed from both arguments, and the third one from none that is
    left."""
    lines = (
        "%a = neg(%w) : f32[4]",
        "%b = add(%w, %m) : f32[4]",
        "%c = exp(%w) : f32[4]",
        "return %a, %b, %c",
    )
    results = "f32[4], f32[4], f32[4]"
    assert pairs_of("%w: f32[4], %m: f32[4]", results, *lines) == {0: 0, 1: 1}


def test_other_operations_than_elementwise_ones_make_no_state() -> None:
    lines = '%a = dot(%w, %w, dims="ij,jk->ik") : f32[4, 4]', "return %a"
    assert pairs_of("%w: f32[4, 4]", "f32[4, 4]", *lines) == {}


def test_state_has_the_type_of_its_argument() -> None:
    lines = "%a = neg(%x) : f32[4]", "%b = select(%p, %a, %a) : f32[4]", "return %b"
    assert pairs_of("%p: bool[4], %x: f32[4]", "f32[4]", *lines) == {0: 1}


@pytest.mark.parametrize(
    ("params", "results", "count"),
    [
        ("%w: f32[]", "f32[]", None),
        ("%w: f32[4]", "f32[4@x]", None),
        ("%w: f32[4]", "f32[4]", 0),
    ],
    ids=["a scalar", "a result with a stated sharding", "a captured array"],
)
def test_results_that_are_no_state(params: str, results: str, count: int | None) -> None:
    line = f"%a = neg(%w) : {params.partition(': ')[2]}"
    assert pairs_of(params, results, line, "return %a", count=count) == {}
