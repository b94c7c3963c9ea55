"""`shard_map` of indivisible dimensions: padded on request, and results are trimmed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.frontend.errors import ArgumentError, IndivisibleError
from shardir.sharding import NamedSharding, PartitionSpec as P

pytestmark = pytest.mark.sample(2)

V = np.arange(1, 7, dtype=np.float32)
X = P("x")


def mesh() -> Any:
    return sd.make_mesh((4,), ("x",), devices=sd.devices()[:4])


def mapped(f: Callable[..., Any], into: Any = X, out: Any = X, **options: Any) -> Any:
    options = {"uneven": "pad", **options}
    return sd.shard_map(f, mesh=mesh(), in_specs=into, out_specs=out, **options)


@pytest.mark.parametrize("mode", ["pad", "replicate", "error"])
def test_no_setting_changes_what_shard_map_computes(mode: str) -> None:
    bodies: list[tuple[Callable[..., Any], Any]] = [
        (lambda v: lax.pmin(v.min(), "x"), P()),
        (lambda v: v * 2, X),
        (lambda v: lax.pmean(v.mean(), "x"), P()),
    ]
    for body, out in bodies:
        # Inside of jit, "error" rejects all indivisible dimensions.
        for wrap in (lambda f: f, sd.jit) if mode != "error" else (lambda f: f,):
            with sd.config(uneven=mode), pytest.raises(IndivisibleError) as caught:
                wrap(mapped(body, out=out, uneven=None))(V)
            assert str(caught.value).splitlines()[0] == (
                "shard_map of lambda shards dimension 0 of v, which is f32[6], over 'x' of size 4, "
                'and 6 is not divisible by 4; pad it to 8, replicate it, or pass uneven="pad" to '
                "shard_map"
            )
            plain = np.asarray(wrap(mapped(body, out=out))(V))
            with sd.config(uneven=mode):
                np.testing.assert_array_equal(np.asarray(wrap(mapped(body, out=out))(V)), plain)


def test_invalid_values_of_uneven_are_errors() -> None:
    for given, text in (("replicate", "'replicate'"), (V, "float32[6]")):
        with pytest.raises(ArgumentError) as caught:
            mapped(lambda v: v, uneven=given)
        assert str(caught.value).splitlines()[0] == (
            f"uneven of shard_map is {text}; it must be 'pad' or None"
        )


def rows(v: Any) -> int:
    """Return the number of rows of `v` on each of four devices."""
    return -(-len(v) // 4)


def loop(v: Any) -> Any:
    return lax.fori_loop(0, 3, lambda _, c: c + lax.psum(c.sum(), "x") * 0 + 1, v)


def scanned(v: Any) -> Any:
    carried, rows = lax.scan(lambda c, w: (c + w, c * w), v, snp.arange(2.0))
    return carried, rows.T


KEPT: dict[str, tuple[Callable[..., Any], Callable[[Any], Any]]] = {
    "elementwise": (lambda v: v * 2 - 1, lambda v: v * 2 - 1),
    "sum over devices": (lambda v: v + lax.psum(v.sum(), "x"), lambda v: v + v.sum()),
    "product": (lambda v: v[:, None] @ snp.ones((1, 3)), lambda v: np.stack([v] * 3, 1)),
    "lookup": (lambda v: (snp.arange(8.0) * 3)[v.astype(int)], lambda v: 3 * v),
    "choice": (lambda v: snp.where(v > 2, v, -v), lambda v: np.where(v > 2, v, -v)),
    "running sum": (
        snp.cumsum,
        lambda v: np.concatenate([np.cumsum(s) for s in np.split(v, range(rows(v), len(v), rows(v)))
                                  if len(s)])),
    "loop": (loop, lambda v: v + 3),
    "while": (
        lambda v: lax.while_loop(lambda c: lax.pmax(c.max(), "x") < 40, lambda c: c * 2, v),
        lambda v: v * 8),
    "scan": (scanned, lambda v: (v + 1, np.stack([v * 0, v], 1))),
    "branch": (
        lambda v: lax.cond(lax.psum(1, "x") == 4, lambda v: v + 1, lambda v: v * 0, v),
        lambda v: v + 1),
    "checkpoint": (sd.checkpoint(lambda v: snp.sin(v) * 2), lambda v: np.sin(v) * 2),
    "jit": (sd.jit(lambda v: v - 1), lambda v: v - 1),
    "gradient": (sd.grad(lambda v: (v**3).sum()), lambda v: 3 * v**2),
    "map over rows": (sd.vmap(lambda x: x * x), lambda v: v * v),
    "container": (lambda v: {"a": v, "b": (v + 1,)}, lambda v: {"a": v, "b": (v + 1,)}),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("size", [5, 6, 1, 3])
def test_padding_of_results_is_removed(name: str, size: int) -> None:
    body, want = KEPT[name]
    f = mapped(body, check_vma=False)
    v = np.arange(1, size + 1, dtype=np.float32)
    expected = want(v)
    if name == "while":
        expected = v * 2 ** int(np.ceil(np.log2(40 / size)))
    for got in (f(v), sd.jit(f)(v)):
        for one, two in zip(sd.tree.leaves(got), sd.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(np.asarray(one), two, rtol=1e-6)


MOVED: dict[str, tuple[Callable[..., Any], list[float]]] = {
    "sort": (snp.sort, [1, 2, 3, 4, 0, 5, 0, 0]),
    "reversal": (lambda v: v[::-1], [2, 1, 4, 3, 0, 5, 0, 0]),
    "exchange": (
        lambda v: lax.ppermute(v, "x", [(i, (i + 1) % 4) for i in range(4)]),
        [0, 0, 1, 2, 3, 4, 5, 0]),
    "joined": (lambda v: snp.concatenate([v, v[:1]]), [1, 2, 1, 3, 4, 3, 5, 0, 5, 0, 0, 0]),
    "one for each device": (lambda v: v.sum(keepdims=True), [3, 7, 5, 0]),
    "reversal in a loop": (
        lambda v: lax.fori_loop(0, 3, lambda _, c: c[::-1], v), [2, 1, 4, 3, 0, 5, 0, 0]),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVED)
def test_results_with_moved_rows_are_not_trimmed(name: str) -> None:
    body, want = MOVED[name]
    for wrap in (lambda f: f, sd.jit):
        np.testing.assert_array_equal(np.asarray(wrap(mapped(body))(V[:5])), want)


def test_padding_of_two_arguments_is_distinguished() -> None:
    f = mapped(lambda v, w: (v * 2, w * 2, v + w), into=(X, X))
    one, two, both = f(V, V[:5])
    np.testing.assert_array_equal(np.asarray(one), 2 * V)
    np.testing.assert_array_equal(np.asarray(two), 2 * V[:5])
    # The sum has neither of the sizes, so that nothing is removed.
    np.testing.assert_array_equal(np.asarray(both), [2, 4, 6, 8, 10, 6, 0, 0])


def test_padding_in_two_dimensions_and_along_several_axes() -> None:
    square = sd.make_mesh((2, 3), ("x", "y"), devices=sd.devices()[:6])
    a = np.arange(35, dtype=np.float32).reshape(5, 7)
    for spec in (P("x", "y"), P(("x", "y")), P(None, "x"), P("y")):
        f = sd.shard_map(lambda a: a + 1, mesh=square, in_specs=spec, out_specs=spec, uneven="pad")
        np.testing.assert_array_equal(np.asarray(f(a)), a + 1)
    turned = sd.shard_map(
        lambda a: a.T, mesh=square, in_specs=P("x", "y"), out_specs=P("y", "x"), uneven="pad"
    )
    np.testing.assert_array_equal(np.asarray(turned(a)), a.T)


def test_results_have_the_shardings_of_out_specs() -> None:
    for f in (mapped(lambda v: v + 1), sd.jit(mapped(lambda v: v + 1), uneven="pad")):
        result = f(V)
        assert result.sharding.is_equivalent_to(NamedSharding(mesh(), X), 1)
        assert [shard.data.shape for shard in result.addressable_shards] == [(2,), (2,), (2,), (0,)]


def test_grad_and_vmap_of_padded_shard_map() -> None:
    f = mapped(lambda v: v**2)
    gradient = sd.grad(lambda v: (f(v) * snp.arange(6.0)).sum())(V)
    np.testing.assert_allclose(np.asarray(gradient), 2 * V * np.arange(6), rtol=1e-6)
    _, tangent = sd.jvp(f, (V,), (np.ones_like(V),))
    np.testing.assert_allclose(np.asarray(tangent), 2 * V)
    np.testing.assert_allclose(np.asarray(sd.vmap(f)(np.stack([V, -V]))), np.stack([V, -V]) ** 2)


def test_padding_contains_zeros_on_the_last_devices() -> None:
    f = mapped(lambda v: lax.all_gather(v, "x", tiled=True), out=P(), check_vma=False)
    np.testing.assert_array_equal(np.asarray(f(V)), [*V, 0, 0])
    assert float(mapped(lambda v: lax.pmin(v.min(), "x"), out=P())(V)) == 0
