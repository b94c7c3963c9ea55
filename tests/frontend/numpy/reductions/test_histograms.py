"""Histograms with few bins, whose edges are compared with every element, and with many bins."""

from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.frontend.numpy.reductions.histograms import MAX_COMPARED_EDGES

NUMBERS = np.random.default_rng(3).normal(size=2000).astype(np.float32)


def check(x: Any, **options: Any) -> None:
    got, edges = snp.histogram(x, **options)
    want, others = np.histogram(x, **options)
    assert got.dtype == np.float32
    np.testing.assert_allclose(edges, others, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("bins", [1, 2, MAX_COMPARED_EDGES - 1, MAX_COMPARED_EDGES, 100])
def test_bin_counts(bins: int) -> None:
    # Multiples of 1/4 are equal to edges or clearly different from them.
    x = np.round(NUMBERS * 4) / 4
    check(x, bins=bins, range=(-4, 4))
    check(x.reshape(40, 50), bins=bins, range=(-4, 4), density=True)
    check((x * 4).astype(np.int32), bins=bins, range=(-16, 16))


@pytest.mark.parametrize("more", [0, MAX_COMPARED_EDGES])
def test_given_edges(more: int) -> None:
    far = np.linspace(7, 8, more, dtype=np.float32)
    edges = np.concatenate([np.array([-1, -0.5, 0, 0, 0.25, 3], np.float32), far])
    x = np.concatenate([NUMBERS, edges, [np.nan, np.inf, -np.inf]]).astype(np.float32)
    check(x, bins=edges)
    check(x[:0], bins=edges)
    assert snp.histogram(x, bins=edges[:1])[0].shape == (0,)


def test_weights_and_devices() -> None:
    check(NUMBERS, bins=8, range=(-2, 2), weights=np.ones_like(NUMBERS))
    mesh = sd.make_mesh((4,), ("a",))
    x = sd.device_put(NUMBERS, sd.NamedSharding(mesh, sd.P("a")))
    got = sd.jit(lambda x: snp.histogram(x, bins=8, range=(-2.0, 2.0))[0])(x)
    np.testing.assert_array_equal(got, np.histogram(NUMBERS, 8, (-2, 2))[0])
    batched = sd.vmap(lambda x: snp.histogram(x, bins=8, range=(-2.0, 2.0))[0])(x.reshape(4, 500))
    np.testing.assert_array_equal(np.asarray(batched).sum(0), got)
