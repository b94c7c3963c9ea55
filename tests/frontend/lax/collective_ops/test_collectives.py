"""Collectives along the axes of `vmap` against NumPy over the batch."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.frontend.dispatch.jit import jit
from shardir.frontend.errors import (
    ArgumentError,
    AxisError,
    AxisNameError,
    PermutationError,
    ShapeError,
)
from shardir.frontend.lax import api as lax
from shardir.frontend.transforms.grad import grad
from shardir.frontend.transforms.vmap import vmap
from tests import error_assertions
from tests.error_assertions import raw

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 3)).astype(np.float32)
N = 4


def run_vmap(fun: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Return the result of `vmap` along `i`, and check that it is the same inside `jit`."""
    made = vmap(fun, axis_name="i", **options)(*args)
    np.testing.assert_allclose(
        jit(vmap(fun, axis_name="i", **options))(*args), made, rtol=1e-5, atol=1e-6
    )
    return np.asarray(made)


def agree(made: Any, expected: Any) -> None:
    assert np.shape(made) == np.shape(expected)
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)


def test_sums_means_and_extremes() -> None:
    agree(run_vmap(lambda x: x - lax.pmean(x, "i"), X), X - X.mean(0))
    agree(run_vmap(lambda x: lax.psum(x, "i"), X), np.broadcast_to(X.sum(0), X.shape))
    agree(vmap(lambda x: lax.psum(x, "i"), axis_name="i", out_axes=None)(X), X.sum(0))
    agree(run_vmap(lambda x: x / lax.pmax(x, "i"), X), X / X.max(0))
    agree(run_vmap(lambda x: x / lax.pmin(x, "i"), X), X / X.min(0))
    count = run_vmap(lambda x: lax.psum(x > 0, "i"), X, out_axes=None)
    np.testing.assert_array_equal(count, (X > 0).sum(0))
    agree(run_vmap(lambda x: lax.pmean(x, "i"), np.arange(4), out_axes=None), 1.5)


def test_psum_of_a_constant_multiplies_by_the_axis_size() -> None:
    y = X[0]
    agree(run_vmap(lambda x: x + lax.psum(y, "i"), X), X + N * y)
    agree(run_vmap(lambda x: x * lax.psum(1, "i"), X), X * N)
    sizes: list[Any] = []

    def f(x: Any) -> Any:
        sizes.append((lax.psum(1, "i"), lax.axis_size("i")))
        return x

    vmap(f, axis_name="i")(X)
    assert sizes == [(N, N)]


def test_axis_index() -> None:
    np.testing.assert_array_equal(run_vmap(lambda x: lax.axis_index("i"), X), np.arange(N))
    both = vmap(vmap(lambda x: lax.axis_index(("i", "j")), axis_name="j"), axis_name="i")(X)
    np.testing.assert_array_equal(both, np.arange(12).reshape(4, 3))
    alone = vmap(lambda: lax.axis_index("i"), axis_name="i", axis_size=3)()
    np.testing.assert_array_equal(alone, np.arange(3))


def test_permutations() -> None:
    around = [(i, (i + 1) % N) for i in range(N)]
    agree(run_vmap(lambda x: lax.ppermute(x, "i", around), X), np.roll(X, 1, 0))
    text = jit(vmap(lambda x: lax.ppermute(x, "i", around), axis_name="i")).lower(X).as_text()
    assert "gather" not in text
    swapped = [(0, 1), (1, 0), (2, 3), (3, 2)]
    agree(run_vmap(lambda x: lax.ppermute(x, "i", swapped), X), X[[1, 0, 3, 2]])
    some = run_vmap(lambda x: lax.ppermute(x, "i", [(0, 2), (3, 1)]), X)
    agree(some, np.stack([X[0] * 0, X[3], X[0], X[0] * 0]))
    agree(run_vmap(lambda x: lax.ppermute(x, "i", []), X), X * 0)
    agree(run_vmap(lambda x: lax.pshuffle(x, "i", [3, 1, 0, 2]), X), X[[3, 1, 0, 2]])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_all_gather(axis: int) -> None:
    stacked = run_vmap(lambda x: lax.all_gather(x, "i", axis=axis), X)
    agree(stacked, np.stack([np.stack(list(X), axis)] * N))
    wide = RNG.standard_normal((4, 3, 2)).astype(np.float32)
    tiled = run_vmap(lambda x: lax.all_gather(x, "i", axis=axis, tiled=True), wide)
    agree(tiled, np.stack([np.concatenate(list(wide), axis)] * N))


def test_psum_scatter() -> None:
    square = RNG.standard_normal((4, 2, 4)).astype(np.float32)
    made = run_vmap(lambda x: lax.psum_scatter(x, "i", scatter_dimension=1), square)
    agree(made, square.sum(0).T)
    wide = RNG.standard_normal((4, 8, 3)).astype(np.float32)
    tiled = run_vmap(lambda x: lax.psum_scatter(x, "i", tiled=True), wide)
    agree(tiled, wide.sum(0).reshape(4, 2, 3))


@pytest.mark.parametrize("split", [0, 1, 2])
@pytest.mark.parametrize("concat", [0, 1, 2])
def test_all_to_all(split: int, concat: int) -> None:
    x = RNG.standard_normal((4, 4, 4, 4)).astype(np.float32)
    made = run_vmap(lambda y: lax.all_to_all(y, "i", split, concat), x)
    expected = [np.stack([np.take(y, i, split) for y in x], concat) for i in range(N)]
    agree(made, np.stack(expected))
    x = RNG.standard_normal((4, 8, 8, 8)).astype(np.float32)
    made = run_vmap(lambda y: lax.all_to_all(y, "i", split, concat, tiled=True), x)
    expected = [np.concatenate([np.split(y, N, split)[i] for y in x], concat) for i in range(N)]
    agree(made, np.stack(expected))
    swapped = run_vmap(lambda y: lax.pswapaxes(y, "i", 1), x[:, :, :4])
    agree(swapped, np.swapaxes(x[:, :, :4], 0, 2))


@pytest.mark.parametrize("tiled", [False, True])
def test_all_to_all_along_several_axes(tiled: bool) -> None:
    x = RNG.standard_normal((2, 3, 6, 5)).astype(np.float32)

    def exchanged(names: Any) -> Callable[[Any], Any]:
        return lambda y: lax.all_to_all(y, names, 0, 1, tiled=tiled)

    both = vmap(vmap(exchanged(("i", "j")), axis_name="j"), axis_name="i")(x)
    flat = vmap(exchanged("i"), axis_name="i")(x.reshape(6, 6, 5))
    agree(np.asarray(both).reshape(np.shape(flat)), flat)


def test_several_axes_in_one_collective() -> None:
    def f(x: Any) -> Any:
        return x - lax.pmean(x, ("i", "j")), lax.psum(x, "j"), lax.all_gather(x, ("i", "j"))

    far, rows, whole = vmap(vmap(f, axis_name="j"), axis_name="i")(X)
    agree(far, X - X.mean())
    agree(rows, np.repeat(X.sum(1, keepdims=True), 3, 1))
    agree(whole, np.broadcast_to(X.reshape(-1), (4, 3, 12)))
    outer = vmap(vmap(lambda x: lax.psum(x, "i"), axis_name="j"), axis_name="i")(X)
    agree(outer, np.broadcast_to(X.sum(0), (4, 3)))


def test_inside_loops_and_branches() -> None:
    def running(x: Any) -> Any:
        return lax.scan(lambda c, _: (c + lax.psum(x, "i"), lax.axis_index("i")), x, None, length=2)

    ends, places = vmap(running, axis_name="i")(X)
    agree(ends, X + 2 * X.sum(0))
    np.testing.assert_array_equal(places, np.repeat(np.arange(N)[:, None], 2, 1))
    chosen = run_vmap(lambda x: lax.cond(True, lambda: lax.psum(x, "i"), lambda: x), X)
    agree(chosen, np.broadcast_to(X.sum(0), X.shape))


def test_gradients_of_all_positions_add_up() -> None:
    def total(x: Any) -> Any:
        mean = lax.pmean(x, "i")
        moved = lax.ppermute(x, "i", [(i, (i + 1) % N) for i in range(N)])
        gathered = lax.all_gather(x, "i", axis=1)
        dealt = lax.psum_scatter(snp.outer(x, x[:1]) @ snp.ones((1, N), "f4"), "i",
                                 scatter_dimension=1)  # fmt: skip
        return snp.sum(mean * moved) + snp.sum(gathered**3) + snp.sum(lax.pmax(x, "i") * dealt)

    inside = vmap(grad(total), axis_name="i")(X)
    outside = grad(lambda x: snp.sum(vmap(total, axis_name="i")(x)))(X)
    agree(inside, np.asarray(outside))


def vmap_error(kind: type[Exception], fun: Callable[[Any], Any], x: Any = X) -> str:
    return error_assertions.error_line(kind, lambda: vmap(fun, axis_name="rows")(x))


def test_unknown_axis_names_are_errors() -> None:
    assert vmap_error(AxisNameError, lambda x: lax.psum(x, "row")) == (
        "psum is along 'row', which is not bound at this line (bound axes: 'rows'); did you mean "
        "'rows'?"
    )
    with pytest.raises(AxisNameError) as caught:
        lax.axis_index("i")
    assert str(caught.value).splitlines()[0] == (
        "axis_index is along 'i', which is not bound at this line (bound axes: none); name one "
        "with axis_name= of vmap or pmap, or in the mesh of shard_map"
    )
    with pytest.raises(NameError):
        vmap(lambda x: lax.psum(x, "i"))(X)


def test_invalid_permutations_are_errors() -> None:
    assert vmap_error(PermutationError, lambda x: lax.ppermute(x, "rows", [(0, 1), (2, 1)])) == (
        "perm of ppermute has the target 1 twice; every position sends once and receives once at "
        "most"
    )
    assert vmap_error(PermutationError, lambda x: lax.ppermute(x, "rows", [(0, 4)])) == (
        "perm of ppermute has the target 4; the positions along 'rows' are 0 to 3"
    )
    assert vmap_error(ArgumentError, lambda x: lax.ppermute(x, "rows", raw([1]))) == (
        "perm of ppermute is [1]; it is a list of pairs (source, target)"
    )
    assert vmap_error(PermutationError, lambda x: lax.pshuffle(x, "rows", [0, 1, 1, 2])) == (
        "perm of pshuffle is [0, 1, 1, 2]; it has every number from 0 to 3 once"
    )


def test_indivisible_dimensions_are_errors() -> None:
    assert vmap_error(ShapeError, lambda x: lax.psum_scatter(x, "rows", tiled=True)) == (
        "psum_scatter splits dimension 0 of f32[3] into 4 equal parts, and 3 is not divisible by "
        "4; pad the dimension"
    )
    assert vmap_error(ShapeError, lambda x: lax.all_to_all(x, "rows", 0, 0)) == (
        "all_to_all gives each of 4 positions one element along dimension 0 of f32[3], whose size "
        "is 3; reshape it to size 4, or pass tiled=True to give each position several elements"
    )
    assert vmap_error(AxisError, lambda x: lax.all_gather(x, "rows", axis=2)) == (
        "axis 2 is out of range for an array of rank 2"
    )


def test_invalid_groups_are_errors() -> None:
    def groups(*groups: Any) -> str:
        return vmap_error(
            ArgumentError, lambda x: lax.all_gather(x, "rows", axis_index_groups=list(groups))
        )

    assert groups([0, 1], [2]) == (
        "axis_index_groups of all_gather is [[0, 1], [2]]; it must contain every position along "
        "'rows', 0 to 3, exactly once"
    )
    assert groups([0, 1, 2], [3]) == (
        "axis_index_groups of all_gather has groups of different sizes, [[0, 1, 2], [3]]; make "
        "them of one size"
    )
    assert groups(0, 1) == (
        "axis_index_groups of all_gather is [0, 1]; it is a list of lists of positions"
    )


def test_collectives_in_groups() -> None:
    groups = [[0, 3], [2, 1]]
    other = [3, 2, 1, 0]

    def f(x: Any) -> Any:
        return (
            lax.psum(x, "i", axis_index_groups=groups),
            lax.pmax(x, "i", axis_index_groups=[[0, 1, 3], [2]]),
            lax.all_gather(x, "i", axis_index_groups=groups),
            lax.pmean(x, "i", axis_index_groups=[[0, 1, 3], [2]]),
        )

    total, most, all_, mean = vmap(f, axis_name="i")(X)
    agree(total, X + X[other])
    three = [0, 1, 3]
    agree(most[0], X[three].max(0))
    agree(most[2], X[2])
    agree(all_, np.stack([X[[0, 3]], X[[2, 1]], X[[2, 1]], X[[0, 3]]]))
    agree(mean[1], X[three].mean(0))


def test_invalid_axis_names_are_errors() -> None:
    assert vmap_error(AxisNameError, lambda x: lax.ppermute(x, raw(("rows", "rows")), [])) == (
        "ppermute is along 'rows' twice; name each axis once"
    )
    with pytest.raises(
        ArgumentError, match="axis_name of vmap of lambda is 3, which is not a string"
    ):
        vmap(lambda x: x, axis_name=raw(3))


SIZES = np.array([2], np.int32)
ZEROS = np.zeros(1, np.int32)


def exchange_rows(x: Any) -> Any:
    empty = np.zeros((4, 3), np.float32)
    return lax.ragged_all_to_all(x, empty, ZEROS, SIZES, ZEROS, SIZES, axis_name=())


@pytest.mark.parametrize(
    ("collective", "expected"),
    [
        (lambda x: lax.psum(x, ()), X),
        (lambda x: lax.psum(x, (), axis_index_groups=[[0]]), X),
        (lambda x: lax.psum({"a": x}, [])["a"], X),
        (lambda x: lax.psum(x > 0, ()), X > 0),
        (lambda x: lax.pmean(x, ()), X),
        (lambda x: lax.pmean(x > 0, ()), (X > 0).astype(np.float32)),
        (lambda x: lax.pmax(x, ()), X),
        (lambda x: lax.pmin(x, ()), X),
        (lambda x: lax.all_gather(x, ()), X),
        (lambda x: lax.all_gather(x, (), tiled=True), X),
        (lambda x: lax.psum_scatter(x, ()), X),
        (lambda x: lax.psum_scatter(x, (), tiled=True), X),
        (lambda x: lax.pcast(x, (), to="varying"), X),
        (lambda x: lax.pvary(x, ()), X),
        (lambda x: lax.all_to_all(x, (), 1, 0, tiled=True), X),
        (lambda x: lax.pswapaxes(x[:1], (), 0), X[:1]),
        (lambda x: lax.ppermute(x, (), [(0, 0)]), X),
        (lambda x: lax.ppermute(x, (), []), np.zeros_like(X)),
        (lambda x: lax.pshuffle(x, (), [0]), X),
        (lambda x: lax.pbroadcast(x, (), 0), X),
        (lambda x: lax.axis_index(()), np.int32(0)),
        (exchange_rows, np.concatenate([X[:2], np.zeros((2, 3), np.float32)])),
    ],
)
def test_collectives_over_no_axes_have_one_position(
    collective: Callable[[Any], Any], expected: Any
) -> None:
    for made in (
        collective(snp.asarray(X)),
        jit(collective)(X),
        vmap(collective, axis_name="i", in_axes=None, out_axes=None, axis_size=2)(X),
    ):
        assert made.dtype == expected.dtype
        np.testing.assert_array_equal(made, expected)


def test_sums_over_no_axes_keep_python_numbers_and_refuse_other_objects() -> None:
    assert lax.psum(3, ()) == 3
    assert isinstance(lax.psum(3, ()), int)
    error = error_assertions.error_line(Exception, lambda: lax.psum("a", ()))
    assert error == "argument x of psum is 'a' of type str, which is not an array"


@pytest.mark.parametrize("mapped", [vmap, sd.pmap])
def test_collectives_of_values_during_a_trace_have_no_axes(mapped: Any) -> None:
    def f(x: Any) -> Any:
        with sd.ensure_compile_time_eval():
            lax.pmax(np.ones(3, np.float32), "i")
        return x

    error = error_assertions.error_line(AxisNameError, lambda: mapped(f, axis_name="i")(X[:1]))
    assert error == (
        "pmax is along 'i', which is not bound at this line (bound axes: none); name one with "
        "axis_name= of vmap or pmap, or in the mesh of shard_map"
    )
