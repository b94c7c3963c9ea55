"""Functions of two operands in the namespace, over pairs of special numbers and dense samples."""

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from tests.backends.cpu.kernels.math.accuracy import errors
from tests.backends.cpu.kernels.math.elementwise_runner import Array, pairs

ULPS = {
    "power": 1.2, "arctan2": 1.9, "hypot": 0.55, "fmod": 0.0, "remainder": 0.5, "divide": 0.5,
    "copysign": 0.0, "heaviside": 0.0, "float_power": 1.2,
}  # fmt: skip
"""The largest errors of f32."""


def operands() -> tuple[Array, Array]:
    x, y = pairs("f32", 20000)
    rng, count = np.random.default_rng(5), 20000
    sizes, by = rng.lognormal(0, 2, count), rng.normal(0, 30, count)
    near = rng.normal(0, 3, (2, count))
    return (
        np.concatenate([x, sizes.astype(np.float32), near[0].astype(np.float32)]),
        np.concatenate([y, by.astype(np.float32), near[1].astype(np.float32)]),
    )


@pytest.mark.parametrize("name", ULPS)
def test_f32_keeps_its_bound(name: str) -> None:
    x, y = operands()
    got = np.asarray(sd.jit(getattr(snp, name))(x, y))
    with np.errstate(all="ignore"):
        exact = getattr(np, name)(x.astype(np.longdouble), y.astype(np.longdouble))
    apart = errors(got, exact)
    at = int(apart.argmax())
    assert apart[at] <= ULPS[name], (x[at], y[at], got[at], exact[at])


@pytest.mark.parametrize("name", ["logaddexp", "logaddexp2"])
def test_sums_of_exponentials_are_as_good_as_the_larger_one(name: str) -> None:
    """Where the result is nearly 0, in ulp of the operand that it is the sum of."""
    x, y = operands()
    got = np.asarray(sd.jit(getattr(snp, name))(x, y))
    with np.errstate(all="ignore"):
        exact = getattr(np, name)(x.astype(np.longdouble), y.astype(np.longdouble))
        larger = np.maximum(np.abs(exact), np.abs(np.maximum(x, y).astype(np.longdouble)))
        step = np.spacing(larger.astype(np.float32)).astype(np.longdouble)
        apart = np.abs(got - exact) / step
    finite = np.isfinite(exact) & np.isfinite(got)
    assert apart[finite].max() <= 5
    assert (errors(got, exact)[~finite] == 0).all()
