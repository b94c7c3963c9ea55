"""Segment reductions agree with JAX."""

from typing import Any

import jax
import numpy as np
import pytest

import shardir as sd
from shardir.frontend.errors import ArgumentError, TracedValueError

RNG = np.random.default_rng(0)
IDS = np.array([0, 3, 0, -1, 2, 3, 9, 0])
ROWS = {
    "floats": RNG.normal(size=(8, 3)).astype("f"),
    "integers": RNG.integers(-9, 9, 8).astype("int32"),
    "bytes": RNG.integers(0, 9, (8, 2)).astype("uint8"),
}
NAMES = ("segment_sum", "segment_prod", "segment_max", "segment_min")


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("name", NAMES)
def test_results_agree_with_jax(name: str, rows: str) -> None:
    ours, theirs = getattr(sd, name), getattr(jax.ops, name)
    expected = theirs(ROWS[rows], IDS, 5)
    np.testing.assert_allclose(ours(ROWS[rows], IDS, 5), expected, rtol=1e-5)
    compiled = sd.jit(lambda x, ids: ours(x, ids, num_segments=5))
    np.testing.assert_allclose(compiled(ROWS[rows], IDS), expected, rtol=1e-5)
    np.testing.assert_allclose(ours(ROWS[rows], IDS), theirs(ROWS[rows], IDS), rtol=1e-5)


@pytest.mark.parametrize("name", ["segment_sum", "segment_max"])
def test_gradients_agree_with_jax(name: str) -> None:
    def loss(function: Any) -> Any:
        return lambda x: (function(x, IDS % 4, 4) ** 2).sum()

    found = sd.grad(loss(getattr(sd, name)))(ROWS["floats"])
    expected = jax.grad(loss(getattr(jax.ops, name)))(ROWS["floats"])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_sharded_rows() -> None:
    mesh = sd.make_mesh((8,), ("i",))
    cut = sd.device_put(ROWS["floats"], sd.NamedSharding(mesh, sd.P("i")))
    found = sd.jit(lambda x: sd.segment_sum(x, IDS, 5))(cut)
    np.testing.assert_allclose(found, jax.ops.segment_sum(ROWS["floats"], IDS, 5), rtol=1e-5)


def test_invalid_arguments_are_errors() -> None:
    with pytest.raises(TracedValueError) as caught:
        sd.jit(sd.segment_sum)(ROWS["floats"], IDS)
    assert str(caught.value).startswith(
        "the number of segments is not known while tracing; pass num_segments\n"
    )
    with pytest.raises(ArgumentError) as wrong:
        sd.segment_sum(ROWS["floats"], IDS, -1)
    assert str(wrong.value).startswith("num_segments is at least 0, got -1\n")
    with pytest.raises(ArgumentError) as mode:
        sd.segment_sum(ROWS["floats"], IDS, 3, mode="odd")
    assert str(mode.value).startswith("mode 'odd' is unknown; the modes are drop, fill, clip, ")
