"""Binary functions of the namespace, on pairs of special values and dense samples."""

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from tests.backends.cpu.kernels.math.accuracy import ulp_errors
from tests.backends.cpu.kernels.math.elementwise_runner import Array, operand_pairs

BOUNDS_ULP = {
    "power": 1.2, "arctan2": 1.9, "hypot": 0.55, "fmod": 0.0, "remainder": 0.5, "divide": 0.5,
    "copysign": 0.0, "heaviside": 0.0, "float_power": 1.2,
}  # fmt: skip
"""The largest errors of f32 in ulp."""


def operands() -> tuple[Array, Array]:
    x, y = operand_pairs("f32", 20000)
    rng, count = np.random.default_rng(5), 20000
    sizes, exponents = rng.lognormal(0, 2, count), rng.normal(0, 30, count)
    near = rng.normal(0, 3, (2, count))
    return (
        np.concatenate([x, sizes.astype(np.float32), near[0].astype(np.float32)]),
        np.concatenate([y, exponents.astype(np.float32), near[1].astype(np.float32)]),
    )


@pytest.mark.parametrize("name", BOUNDS_ULP)
def test_f32_errors_are_within_the_bound(name: str) -> None:
    x, y = operands()
    got = np.asarray(sd.jit(getattr(snp, name))(x, y))
    with np.errstate(all="ignore"):
        exact = getattr(np, name)(x.astype(np.longdouble), y.astype(np.longdouble))
    distance = ulp_errors(got, exact)
    at = int(distance.argmax())
    assert distance[at] <= BOUNDS_ULP[name], (x[at], y[at], got[at], exact[at])


@pytest.mark.parametrize("name", ["logaddexp", "logaddexp2"])
def test_logaddexp_is_accurate_relative_to_the_larger_operand(name: str) -> None:
    """Where the result is nearly 0, the error is in ulp of the larger operand."""
    x, y = operands()
    got = np.asarray(sd.jit(getattr(snp, name))(x, y))
    with np.errstate(all="ignore"):
        exact = getattr(np, name)(x.astype(np.longdouble), y.astype(np.longdouble))
        larger = np.maximum(np.abs(exact), np.abs(np.maximum(x, y).astype(np.longdouble)))
        step = np.spacing(larger.astype(np.float32)).astype(np.longdouble)
        distance = np.abs(got - exact) / step
    finite = np.isfinite(exact) & np.isfinite(got)
    assert distance[finite].max() <= 5
    assert (ulp_errors(got, exact)[~finite] == 0).all()
