"""Collectives along the vectorized axis become operations on the batch dimension."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir import lax
from shardir.errors import VectorizeError
from shardir.passes.batching.vectorize import vectorize
from shardir.text.parser import parse

X = np.arange(12, dtype=np.float32).reshape(4, 3) - 5
ROTATED = np.roll(X, 1, axis=0)


def permuted(*pairs: tuple[int, int]) -> Callable[[Any], Any]:
    return partial(lax.ppermute, axis_name="i", perm=pairs)


def received(*pairs: tuple[int, int]) -> np.ndarray:
    """Return the rows of `X` at the positions to which they are sent, and zeros elsewhere."""
    result = np.zeros_like(X)
    for source, target in pairs:
        result[target] = X[source]
    return result


@pytest.mark.parametrize(
    ("fun", "expected"),
    [
        (lambda x: lax.psum(x, "i"), np.tile(X.sum(0), (4, 1))),
        (lambda x: x - lax.pmax(x, "i"), X - X.max(0)),
        (lambda x: lax.axis_index("i") * x, np.arange(4)[:, None] * X),
        (lambda x: lax.all_gather(x, "i"), np.tile(X, (4, 1, 1))),
        # All rows move by the same distance, which may be none.
        (permuted((0, 1), (1, 2), (2, 3), (3, 0)), ROTATED),
        (permuted((0, 0), (1, 1), (2, 2), (3, 3)), X),
        # They move by different distances, only some are received, or none.
        (permuted((0, 1), (1, 0), (2, 3), (3, 2)), X[[1, 0, 3, 2]]),
        (permuted((0, 1), (1, 2), (2, 3)), received((0, 1), (1, 2), (2, 3))),
        (permuted((3, 0), (1, 2)), received((3, 0), (1, 2))),
        (permuted(), np.zeros_like(X)),
        # The collective is inside of a branch, or the batched value is only inside of a loop.
        (lambda x: lax.cond(True, lambda y: lax.psum(y, "i"), lambda y: y, x), X.sum(0) + 0 * X),
        (lambda x: x * lax.fori_loop(0, 2, lambda _, n: n + lax.axis_index("i"), 0),
         2 * np.arange(4)[:, None] * X),
    ],
)  # fmt: skip
def test_each_row_gets_what_the_collective_gives_its_position(
    fun: Callable[[Any], Any], expected: np.ndarray
) -> None:
    np.testing.assert_array_equal(sd.vmap(fun, axis_name="i")(X), expected)


@pytest.mark.parametrize(
    ("pairs", "names"),
    [
        ([(0, 1), (1, 2), (2, 3), (3, 0)], ["slice", "slice", "concatenate"]),
        ([(0, 0), (1, 1), (2, 2), (3, 3)], []),
        ([(0, 1), (1, 0), (2, 3), (3, 2)], ["constant", "gather"]),
    ],
)
def test_operations_of_permutations(pairs: Sequence[tuple[int, int]], names: list[str]) -> None:
    module = sd.jit(sd.vmap(permuted(*pairs), axis_name="i")).lower(X).module
    assert [op.name for op in module.main.body.walk()] == names


def test_collectives_along_other_axes_are_batched() -> None:
    """The inner axis is vectorized first, and the sum along the outer one remains."""

    def fun(x: Any) -> Any:
        return lax.psum(x, "outer") - lax.psum(x, "inner")

    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    both = sd.vmap(sd.vmap(fun, axis_name="inner"), axis_name="outer")
    np.testing.assert_array_equal(both(x), x.sum(0) - x.sum(1, keepdims=True))


def test_a_sum_along_both_axes() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    both = sd.vmap(
        sd.vmap(lambda x: lax.psum(x, ("outer", "inner")), axis_name="inner"), axis_name="outer"
    )
    np.testing.assert_array_equal(both(x), np.broadcast_to(x.sum((0, 1)), x.shape))


def mapped(operation: str, type: str = "f32[4]", result: str = "") -> Any:
    """Return the vectorized function of one collective along `i`, an axis of size 2."""
    text = f"""\
mesh @m = [i=2, j=2]

func @f(
  %x: {type},
) -> ({result or type}) {{
  %r = manual_computation(%x, axes=[i, j], in_axes=[[DIMS]], out_axes=[[DIMS]]) : RESULT {{
    (%p: {type}) =>
    %y = {operation} : {result or type}
    yield %y
  }}
  return %r
}}
""".replace("DIMS", ", ".join(["[]"] * (type.count(",") + 1))).replace("RESULT", result or type)
    return vectorize(parse(text).main, [True], 2, axis="i")


def test_values_vary_along_the_other_axes() -> None:
    assert "%y = vary(%p, axes=[j:(1)2]) : f32[2, 4]" in str(mapped("vary(%p, axes=[i, j])"))
    assert "vary" not in str(mapped("vary(%p, axes=[i])"))


@pytest.mark.parametrize(
    ("operation", "type", "result", "message"),
    [
        (
            "all-slice(%p, dim=0, axes=[i])",
            "f32[4]",
            "f32[2]",
            "%y = all-slice has no batching rule; vectorize the program before the pass that adds "
            "all-slice",
        ),
        (
            "all-reduce(%p, axes=[i], op=and)",
            "i32[4]",
            "i32[4]",
            "%y = all-reduce combines integers bit by bit",
        ),
        (
            "collective-permute(%p, source=[i], target=[i])",
            "f32[4]",
            "f32[4]",
            "%y = collective-permute states axes instead of pairs of positions, which cannot be "
            "vectorized; write the pairs",
        ),
        (
            "all-to-all(%p, axes=[i, j], split=0, concat=1)",
            "f32[4, 4]",
            "f32[1, 16]",
            "%y = all-to-all is along 'i' and other axes, which cannot be vectorized together; "
            "write one collective per axis",
        ),
    ],
)
def test_collectives_that_cannot_be_vectorized_are_errors(
    operation: str, type: str, result: str, message: str
) -> None:
    with pytest.raises(VectorizeError) as caught:
        mapped(operation, type, result)
    assert str(caught.value).splitlines()[0] == message


@pytest.mark.parametrize("type", ["bool[4]", "f32[4]"])
def test_reductions_along_the_axis_are_reductions_of_the_batch(type: str) -> None:
    kind, name = ("and", "all") if type == "bool[4]" else ("add", "sum")
    text = str(mapped(f"all-reduce(%p, axes=[i], op={kind})", type))
    assert f"= {name}(" in text
    assert "all-reduce" not in text
