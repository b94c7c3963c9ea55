"""The setting `default_matmul_precision`: the precision of products that state none."""

from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import lax, random, scipy
from shardir.frontend.errors import ArgumentError, SettingError
from shardir.frontend.solvers.minimize import minimize
from shardir.interop.in_place_of_jax import shardir_as_jax
from shardir.interop.jax import from_jax
from shardir.interop.jax_shim.program import Program
from tests.error_assertions import first_line
from tests.frontend.lax.test_dot_algorithms import PRODUCTS
from tests.optional_dependencies import require

ONE, ROUNDED = 1 + 2**-12, 1.0
"""A float32, and its value in float16."""


@pytest.mark.parametrize("product", PRODUCTS)
def test_products_without_a_precision_have_the_algorithm(product: Any) -> None:
    x, y = np.array([ONE], "float32"), np.array([1], "float32")
    assert float(product(x, y, None)) == ONE
    with sd.default_matmul_precision("F16_F16_F16"):
        made = product(x, y, None)
        assert (str(made.dtype), float(made)) == ("float32", ROUNDED)
        for stated in ("highest", lax.Precision.DEFAULT, lax.DotAlgorithmPreset.F32_F32_F32):
            assert float(product(x, y, stated)) == ONE
    assert float(product(x, y, None)) == ONE


@pytest.mark.parametrize(
    "product",
    [
        lambda x: x @ x,
        lambda x: sd.nn.dot_product_attention(*[x.reshape(1, 1, 1, 1)] * 3)[0, 0, 0, 0],
        lambda x: snp.linalg.matrix_power(x[None], 2)[0, 0],
        lambda x: snp.linalg.multi_dot([x, x[None], x]),
        lambda x: snp.cov(snp.stack([x, -x]), rowvar=False, ddof=1),
    ],
)
def test_functions_of_products_have_the_algorithm(product: Any) -> None:
    x = np.array([ONE], "float32")
    exact = float(product(snp.asarray(x)))
    with sd.default_matmul_precision("F16_F16_F16"):
        assert abs(float(product(snp.asarray(x))) - exact) > 1e-4


def test_samples_of_a_normal_distribution_have_the_algorithm() -> None:
    def draw() -> Any:
        mean, covariance = np.zeros(2, "float32"), np.eye(2, dtype="float32")
        return np.asarray(random.multivariate_normal(random.key(0), mean, covariance))

    exact = draw()
    with sd.default_matmul_precision("F16_F16_F16"):
        np.testing.assert_array_equal(draw(), exact.astype("float16").astype("float32"))


def test_precisions_that_are_no_algorithms_have_no_effect() -> None:
    x = np.array([ONE], "float32")
    for name in ("default", "high", "highest", "bfloat16", "tensorfloat32", "float32", None):
        with sd.default_matmul_precision(name):
            assert sd.config.default_matmul_precision == name
            assert float(snp.dot(x, np.ones(1, "float32"))) == ONE


def test_each_value_of_the_setting_has_its_own_program() -> None:
    f = sd.jit(lambda x: snp.dot(x, snp.ones(1)))
    x = np.array([ONE], "float32")
    found = []
    for name in (None, "F16_F16_F16", None, "F32_F32_F32", "F16_F16_F16"):
        with sd.default_matmul_precision(name):
            found.append(float(f(x)))
    assert found == [ONE, ROUNDED, ONE, ONE, ROUNDED]


def test_derivatives_and_batches_have_the_algorithm() -> None:
    x = np.array([[ONE, 2]], "float32")
    with sd.default_matmul_precision("F16_F16_F16"):
        np.testing.assert_array_equal(np.asarray(sd.vmap(snp.dot)(x, x)), [5])
        made = sd.vmap(sd.grad(lambda a: snp.dot(a, a)))(x)
    np.testing.assert_array_equal(np.asarray(made), [[2, 4]])


RANDOM = np.random.default_rng(0)
A = (RANDOM.random((4, 4)) + 4 * np.eye(4)).astype("float32")
V = (RANDOM.random(4) + 1).astype("float32")
S = A + A.T
L: Any = lax.linalg


def complex_schur(x: Any) -> Any:
    form, z = scipy.linalg.schur(x)
    return scipy.linalg.rsf2csf(form, z)


EXACT: list[Any] = [
    lambda: snp.linalg.norm(V),
    lambda: snp.linalg.norm(A),
    lambda: snp.kron(A, A),
    lambda: snp.outer(V > 1.5, V > 1.2),
    lambda: snp.linalg.inv(A),
    lambda: snp.linalg.solve(A, V),
    lambda: snp.linalg.lstsq(A[:, :2], V),
    lambda: snp.linalg.pinv(A),
    lambda: snp.polyfit(V, V * V, 2),
    lambda: scipy.linalg.expm(A),
    lambda: scipy.linalg.sqrtm(A),
    lambda: scipy.linalg.polar(A),
    lambda: scipy.linalg.polar(A, side="left"),
    lambda: scipy.linalg.funm(A, snp.exp, disp=False),
    lambda: complex_schur(A),
    lambda: scipy.linalg.hessenberg(A, calc_q=True),
    lambda: scipy.linalg.solve_sylvester(A, A, A),
    lambda: scipy.linalg.lu(A, permute_l=True),
    lambda: scipy.linalg.pascal(9),
    lambda: scipy.linalg.qr_multiply(A, A),
    lambda: scipy.sparse.linalg.cg(S, V),
    lambda: scipy.sparse.linalg.bicgstab(A, V),
    lambda: scipy.sparse.linalg.gmres(A, V),
    lambda: minimize(lambda v: ((v - V) ** 4).sum(), V * 2, method="BFGS").x,
    lambda: sd.image.resize(A, (8, 8), "linear"),
    lambda: sd.nn.scaled_matmul(A[None], A[None], A[None, :, :1], A[None, :, :1]),
    lambda: L.qdwh(A),
    lambda: L.symmetric_product(A, S),
    lambda: L.householder_product(A, V / 8),
    lambda: L.cholesky_update(np.linalg.cholesky(S).T, V),
    lambda: snp.convolve(V, V),
]
"""Functions of which JAX fixes the precision, or which have no products in JAX."""


@pytest.mark.parametrize("position", range(len(EXACT)))
def test_other_functions_ignore_the_setting(position: int) -> None:
    compute = EXACT[position]
    expected = list(map(np.asarray, sd.tree.leaves(compute())))
    with sd.default_matmul_precision("F16_F16_F16"):
        found = list(map(np.asarray, sd.tree.leaves(compute())))
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_average_of_weighted_observations_is_exact() -> None:
    """Only the products of the deviations have the algorithm."""
    x = np.array([[2048, 2050, 2049]], "float32")
    with sd.default_matmul_precision("F16_F16_F16"):
        made = snp.cov(x, aweights=np.array([1, 1, 2]), ddof=0)
    assert float(made) == 0.5


def test_complex_operands_are_refused() -> None:
    """JAX drops their imaginary parts without an error."""
    x = np.ones(2, "complex64")
    with sd.default_matmul_precision("F32_F32_F32"):
        with pytest.raises(ArgumentError) as caught:
            snp.dot(x, x)
        assert complex(snp.dot(x, x, precision=lax.Precision.HIGHEST)) == 2
    assert str(caught.value).partition("\n")[0] == (
        "the algorithm of a product multiplies real numbers, not c64; state "
        "precision=lax.Precision.HIGHEST, because the setting default_matmul_precision is "
        "'F32_F32_F32'"
    )


def test_other_algorithms_are_refused_by_name() -> None:
    with pytest.raises(SettingError) as caught:
        sd.default_matmul_precision("TF32_TF32_F32")
    assert first_line(caught) == (
        "the setting default_matmul_precision is 'TF32_TF32_F32'; it must be 'default', 'high', "
        "'highest', 'bfloat16', 'tensorfloat32', 'float32', 'F16_F16_F16', 'BF16_BF16_F32', "
        "'BF16_BF16_F32_X3', 'BF16_BF16_F32_X6', 'F32_F32_F32', 'F64_F64_F64' or None"
    )


def test_programs_under_the_name_of_jax_set_it() -> None:
    names: dict[str, Any] = {}
    with shardir_as_jax():
        Program().execute(
            "import jax, jax.numpy as jnp\n"
            "x = jnp.array([1 + 2**-12])\n"
            "exact = float(jnp.dot(x, jnp.ones(1)))\n"
            "with jax.default_matmul_precision('F16_F16_F16'):\n"
            "    rounded = float(jnp.dot(x, jnp.ones(1)))\n"
            "jax.config.update('jax_default_matmul_precision', 'F16_F16_F16')\n"
            "value = jax.config.jax_default_matmul_precision\n"
            "updated = float(jnp.dot(x, jnp.ones(1)))\n",
            names,
        )
    assert (names["exact"], names["rounded"], names["updated"]) == (ONE, ROUNDED, ROUNDED)
    assert names["value"] == "F16_F16_F16"
    assert sd.config.default_matmul_precision is None


def test_functions_of_jax_keep_the_setting_of_jax() -> None:
    require("jax")
    import jax

    x = np.array([ONE], "float32")
    with sd.default_matmul_precision("F16_F16_F16"):
        assert float(from_jax(jax.numpy.dot)(x, np.ones(1, "float32"))) == ONE
    with jax.default_matmul_precision("F16_F16_F16"):
        assert float(from_jax(jax.numpy.dot)(x, np.ones(1, "float32"))) == ROUNDED
