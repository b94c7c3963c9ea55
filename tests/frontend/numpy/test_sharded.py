"""Functions of arrays sharded over eight devices have the results of one device."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir import numpy as snp
from shardir.sharding import NamedSharding, PartitionSpec

pytestmark = pytest.mark.sample(4)

X = np.random.default_rng(29).normal(size=(8, 4, 8)).astype("f")

PLACEMENTS: list[tuple[tuple[int, ...], PartitionSpec]] = [
    ((8,), PartitionSpec("a")),
    ((4, 2), PartitionSpec("a", "b")),
    ((4, 2), PartitionSpec("b", "a")),
    ((2, 2, 2), PartitionSpec(("a", "b"), None, "c")),
    ((2, 2, 2), PartitionSpec("c", "a", "b")),
]

CALLS: dict[str, Callable[[Any], Any]] = {
    "arithmetic": lambda x: (x + 1) * x[0] - x % 0.7 + x**3,
    "transcendental": lambda x: snp.tanh(snp.exp(snp.sin(x))),
    "choices": lambda x: snp.where(x > 0, snp.clip(x, 0.1, 0.5), snp.minimum(x, -0.2)),
    "sum of all": lambda x: snp.sum(x),
    "mean of some": lambda x: snp.mean(x, axis=(0, 2), keepdims=True),
    "variance": lambda x: snp.var(x, axis=1) + snp.std(x, axis=0)[0],
    "extremes": lambda x: snp.max(x, 2) - snp.min(x, 2) + snp.ptp(x),
    "places": lambda x: (snp.argmax(x, 0), snp.argmin(x, 2), snp.argmax(x)),
    "truths": lambda x: (snp.any(x > 2, 0), snp.all(x > -9), snp.count_nonzero(x > 0, 1)),
    "median": lambda x: snp.median(x, axis=(0, 2)),
    "quantiles": lambda x: snp.nanquantile(x, snp.array([0.2, 0.7]), axis=1),
    "cumulative": lambda x: snp.cumsum(x, 0) + snp.cumprod(x, 2),
    "differences": lambda x: (snp.diff(x, axis=0), snp.gradient(x, axis=2), snp.trapezoid(x)),
    "matrix products": lambda x: x @ snp.swapaxes(x, 1, 2),
    "contractions": lambda x: snp.einsum("abc,dbc,def->aef", x, x, x),
    "inner and outer": lambda x: (snp.vdot(x, x), snp.outer(x[0, 0], x[:, 0, 0])),
    "norms": lambda x: (snp.linalg.norm(x), snp.linalg.norm(x, 1, axis=(0, 2))),
    "diagonals": lambda x: (snp.trace(x, 1, 0, 2), snp.diagonal(x, 0, 0, 2)),
    "triangles": lambda x: snp.tril(x) + snp.triu(x, 2),
    "made of sizes": lambda x: x + snp.arange(8) + snp.linspace(0, 1, 4)[:, None] + snp.eye(4, 8),
    "covariances": lambda x: snp.cov(x[:, 0]) + snp.corrcoef(x[:, 1]),
    "convolution": lambda x: snp.convolve(x[0, 0], x[1, 1, :3], "same"),
    "softmax": lambda x: sd.nn.softmax(x, (0, 2)) + sd.nn.logsumexp(x, 1, keepdims=True),
    "attention": lambda x: sd.nn.dot_product_attention(
        x.reshape(2, 4, 4, 8), x.reshape(2, 4, 4, 8), x.reshape(2, 4, 4, 8), is_causal=True
    ),
    "parts of numbers": lambda x: (*snp.frexp(x), snp.ldexp(x, 3), snp.signbit(x)),
}


def leaves(found: Any) -> list[Any]:
    return list(found) if isinstance(found, (tuple, list)) else [found]


@pytest.mark.parametrize("placement", PLACEMENTS, ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_results_are_those_of_one_device(name: str, placement: Any) -> None:
    shape, spec = placement
    mesh = sd.make_mesh(shape, ("a", "b", "c")[: len(shape)])
    spread = sd.device_put(X, NamedSharding(mesh, spec))
    expected = leaves(CALLS[name](snp.asarray(X)))
    for function in (CALLS[name], sd.jit(CALLS[name])):
        for mine, theirs in zip(leaves(function(spread)), expected, strict=True):
            assert mine.dtype == theirs.dtype
            np.testing.assert_allclose(np.asarray(mine), np.asarray(theirs), rtol=2e-4, atol=2e-4)


def test_elementwise_functions_keep_shardings() -> None:
    mesh = sd.make_mesh((4, 2), ("a", "b"))
    sharding = NamedSharding(mesh, PartitionSpec("a", "b"))
    spread = sd.device_put(X, sharding)
    for function in (snp.sin, lambda x: x + 1, lambda x: snp.where(x > 0, x, 0), snp.round):
        assert function(spread).sharding.is_equivalent_to(sharding, 3)
