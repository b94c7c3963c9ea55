"""Every primitive of JAX has a rule, is computed by its StableHLO, or is refused with a reason."""

import gc
import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.custom_derivatives import linear_call
from jax.experimental import sparse
from jax.experimental.compute_on import compute_on2
from jax.extend import core
from jax.extend.core import primitives
from jax.interpreters import ad, batching

import shardir as sd
from shardir.frontend.interop.primitive_rules.registry import RULES
from shardir.frontend.interop.refused_primitives import REFUSALS, reason_for_refusal
from shardir.interop.jax import ImportedProgramError, UnknownPrimitiveError, from_jax
from tests.error_assertions import first_line

LOWERED = """
bcoo_dot_general bcoo_dot_general_sampled bcoo_extract bcoo_fromdense bcoo_sort_indices
bcoo_spdot_general bcoo_sum_duplicates bcoo_todense bcoo_transpose bcsr_extract bcsr_fromdense
bcsr_todense call_exported cholesky_update coo_fromdense coo_matmat coo_matvec coo_todense
csr_fromdense csr_matmat csr_matvec csr_todense geqp3 geqrf hessenberg igamma_grad_a
iota_2x32_shape linear_call mulhi ormqr philox2x32 philox4x32 remat_opt rng_bit_generator
scaled_dot schur select_and_scatter symmetric_product threefry4x32 tie todense tridiagonal
xla_metadata_call
"""
"""The primitives of JAX 0.10.2 that are read as the operations to which JAX lowers them."""

NOT_IMPORTED = "pallas mosaic test jax2tf tpu serialization debugger colab roofline cudnn clusters"
"""Parts of the names of modules that need other packages or define kernels."""


def status_of(name: str) -> list[str]:
    """Return the ways in which a primitive is handled."""
    ways = [("rule", name in RULES), ("lowered", name in LOWERED.split())]
    ways.append(("refused", reason_for_refusal(name) is not None))
    return [way for way, applies in ways if applies]


def public_primitives() -> list[str]:
    return sorted({x.name for x in vars(primitives).values() if isinstance(x, core.Primitive)})


def test_public_primitives_are_handled_in_one_way() -> None:
    ways = {name: status_of(name) for name in public_primitives()}
    assert {name: way for name, way in ways.items() if len(way) != 1} == {}


def test_refusals_list_each_primitive_once() -> None:
    names = [name for refusal in REFUSALS for name in refusal.names]
    assert len(names) == len(set(names))
    assert [name for name in (*names, *LOWERED.split()) if name in RULES] == []


@pytest.mark.long
def test_all_primitives_of_jax_are_handled_in_one_way() -> None:
    for base in ("jax._src", "jax.experimental"):
        package = importlib.import_module(base)
        for module in pkgutil.walk_packages(package.__path__, base + "."):
            if not any(part in module.name for part in NOT_IMPORTED.split()):
                importlib.import_module(module.name)
    known = {
        x.name
        for x in gc.get_objects()
        if isinstance(x, core.Primitive) and not type(x).__module__.startswith("equinox")
    }
    ways = {name: status_of(name) for name in known}
    assert {name: way for name, way in ways.items() if len(way) != 1} == {}


RNG = np.random.default_rng(7)
X = RNG.uniform(0.2, 0.9, (4, 4)).astype("float32")
SPARSE = np.where(RNG.uniform(size=(4, 4)) > 0.5, X, 0).astype("float32")
BCOO, BCSR = sparse.BCOO.fromdense(SPARSE), sparse.BCSR.fromdense(SPARSE)
COO, CSR = sparse.COO.fromdense(SPARSE), sparse.CSR.fromdense(SPARSE)
EXPORTED = jax.export.export(jax.jit(lambda x: jnp.sin(x) @ x))(
    jax.ShapeDtypeStruct((4, 4), "float32")
)


def scaled(x: Any) -> Any:
    return compute_on2(
        lambda y: y * 2, compute_type="device_host", out_memory_spaces=jax.memory.Space.Device
    )(x)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "a product of BCOO": lambda x: (BCOO @ x, BCOO @ x[0], x @ BCOO, BCOO.T @ x),
    "conversions of BCOO": lambda x: sparse.BCOO.fromdense(x, nse=16) @ x + BCOO.todense(),
    "a product of two BCOO": lambda x: (BCOO @ BCOO).todense() + x,
    "duplicates": lambda x: (BCOO + BCOO).sum_duplicates(nse=16).todense() + x,
    "a sampled product": lambda x: sparse.bcoo_dot_general_sampled(
        x, x, BCOO.indices, dimension_numbers=(((1,), (0,)), ((), ()))
    ),
    "BCSR": lambda x: (BCSR @ x, BCSR @ x[0], sparse.BCSR.fromdense(x, nse=16).todense()),
    "COO": lambda x: (COO @ x, COO @ x[0], sparse.COO.fromdense(x, nse=16).todense()),
    "CSR": lambda x: (CSR @ x, CSR @ x[0], sparse.CSR.fromdense(x, nse=16).todense()),
    "sparsify": sparse.sparsify(lambda x: jnp.sum((BCOO * x) @ x.T)),
    "an exported function": EXPORTED.call,
    "linear_call": lambda x: linear_call(lambda r, y: r * y, lambda r, t: r * t, x, x),
    "compute_on": scaled,
    "igamma": lambda x: jax.grad(lambda a: jnp.sum(lax.igamma(a, x)))(x),
    "symmetric_product": lambda x: lax.linalg.symmetric_product(x, x),
    "cholesky_update": lambda x: lax.linalg.cholesky_update(jnp.triu(x), x[0]),
}


def agree(found: Any, expected: Any) -> None:
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-5)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_lowered_primitives_agree_with_jax(name: str) -> None:
    function = PROGRAMS[name]
    agree(from_jax(function)(X), jax.jit(function)(X))


def test_derivatives_of_lowered_primitives_are_those_of_jax() -> None:
    def loss(x: Any) -> Any:
        return jnp.sum(jnp.sin(BCOO @ x))

    agree(sd.grad(from_jax(loss))(X), jax.grad(loss)(X))
    ours = sd.jvp(from_jax(loss), (X,), (X,))
    agree(ours, jax.jvp(loss, (X,), (X,)))


def test_a_primitive_of_a_library_is_read_as_the_function_that_implements_it() -> None:
    """Its callbacks run, which a program of StableHLO could not contain."""
    seen: list[float] = []
    primitive = core.Primitive("doubled_and_recorded")

    def double(x: Any, *, factor: float) -> Any:
        jax.debug.callback(lambda y: seen.append(float(y)), x)
        return factor * x

    primitive.def_impl(double)
    primitive.def_abstract_eval(lambda x, *, factor: x)
    ad.primitive_jvps[primitive] = lambda primals, tangents, *, factor: (
        primitive.bind(*primals, factor=factor),
        10 * tangents[0],
    )
    function = from_jax(lambda x: primitive.bind(x, factor=2.0))
    x = jnp.float32(3)
    assert float(function(x)) == 6
    sd.effects_barrier()
    assert seen == [3]
    assert float(sd.grad(function)(sd.numpy.float32(3))) == 10


@pytest.mark.parametrize(
    ("implementation", "message"),
    [
        (lambda x: (x, x), "invalid of JAX has 1 result, but its rule has 2"),
        (lambda x: x[:1], "invalid of JAX returns f32[2], but its rule returns f32[1]"),
    ],
)
def test_an_implementation_with_other_results_is_an_error(
    implementation: Any, message: str
) -> None:
    primitive = core.Primitive("invalid")
    primitive.def_impl(implementation)
    primitive.def_abstract_eval(lambda x: x)
    with pytest.raises(ImportedProgramError) as caught:
        from_jax(primitive.bind)(jnp.ones(2))
    assert first_line(caught) == message


def make_primitive(name: str, implementation: Callable[..., Any]) -> core.Primitive:
    primitive = core.Primitive(name)
    primitive.def_impl(implementation)
    primitive.def_abstract_eval(lambda x: jax.core.ShapedArray((), x.dtype))
    return primitive


def test_vmap_uses_the_batching_rule_of_a_primitive_of_a_library() -> None:
    total = make_primitive("sum_over_the_batch", jnp.sum)
    batching.primitive_batchers[total] = lambda args, dims: (total.bind(*args), None)
    summed: Any = make_primitive("sum_without_rule", jnp.sum)

    def share(x: Any) -> Any:
        return x / total.bind(x)

    agree(sd.vmap(from_jax(share))(X), jax.vmap(share)(X))
    agree(sd.jit(sd.vmap(from_jax(share), in_axes=1))(X), jax.vmap(share, in_axes=1)(X))
    agree(sd.vmap(from_jax(lambda x: summed.bind(x)))(X), X.sum(1))


def test_an_implementation_may_apply_its_primitive_to_other_operands() -> None:
    total: Any = make_primitive(
        "recursive_sum", lambda x: x[0] if x.size == 1 else x[0] + total.bind(x[1:])
    )
    agree(from_jax(total.bind)(X[0]), X[0].sum())


def test_refusals_name_the_primitive_the_reason_and_an_alternative() -> None:
    def ordered(x: Any) -> Any:
        create_token: Any = lax.create_token
        return x, create_token()

    with pytest.raises(UnknownPrimitiveError) as caught:
        from_jax(lambda x: ordered(x)[0])(X)
    assert str(caught.value).startswith(
        "the primitive 'create_token' of JAX has no rule: it orders effects by tokens, which "
        "programs of shardir do not have; use an ordered jax.experimental.io_callback\n"
    )


def test_an_unknown_call_is_an_error_with_its_target() -> None:
    with pytest.raises(UnknownPrimitiveError) as caught:
        from_jax(
            lambda x: lax.linalg.tridiagonal_solve(x[0], x[1], x[2], x, perturb_singular=True)
        )(X)
    assert str(caught.value).startswith(
        "the primitive 'tridiagonal_solve' of JAX has no rule: JAX lowers it to "
        "stablehlo.custom_call @tridiagonal_solve_perturbed_ffi, which cannot run here: it states "
        "a sharding rule; compute it by other functions of jax.lax, or by jax.pure_callback on the "
        "host\n"
    )
    agree(from_jax(lambda x: lax.linalg.schur(x)[0])(X + X.T), lax.linalg.schur(X + X.T)[0])
