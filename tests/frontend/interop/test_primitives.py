"""Every rule computes the result and the gradient of JAX's primitive."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardir as sd
from shardir.frontend.interop.primitive_rules.registry import RULES
from shardir.interop.jax import from_jax
from tests.frontend.interop.primitives import PROGRAMS, Program

pytestmark = pytest.mark.sample(5)


def agree(found: Any, expected: Any) -> None:
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        first, second = np.asarray(a), np.asarray(b)
        assert (first.shape, first.dtype) == (second.shape, second.dtype)
        wide = np.complex128 if second.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(first.astype(wide), second.astype(wide), rtol=3e-5, atol=3e-5)


@pytest.mark.parametrize("program", PROGRAMS, ids=[each.name for each in PROGRAMS])
def test_programs_agree_with_jax(program: Program) -> None:
    function, args = program.function, program.args
    moving = tuple(i for i, x in enumerate(args) if x.dtype == np.float32)
    if not program.smooth or not moving:
        agree(from_jax(function)(*args), jax.jit(function)(*args))
        return

    def total(*args: Any) -> Any:
        made = function(*args)
        leaves = [x for x in jax.tree.leaves(made) if x.dtype == jnp.float32]
        return sum((jnp.sum(jnp.sin(x)) for x in leaves), start=jnp.float32(0)), made

    found = sd.value_and_grad(from_jax(total), argnums=moving, has_aux=True)(*args)
    agree(found, jax.jit(jax.value_and_grad(total, argnums=moving, has_aux=True))(*args))


USED = """
abs add add_any all_gather all_to_all and argmax argmin axis_index bitcast_convert_type
broadcast_in_dim ceil cholesky clamp concatenate cond conv_general_dilated convert_element_type copy
cos cumsum custom_jvp_call custom_linear_solve custom_vjp_call div dot_general dynamic_slice
dynamic_update_slice eigh eq erf_inv exp fft floor gather ge gt imag integer_pow iota is_finite jit
le le_to log log1p logistic lt lt_to lu max min mul ne neg or pad platform_index pmax pow ppermute
psum psum_invariant pvary random_bits random_fold_in random_split random_unwrap random_wrap real
reduce_and reduce_max reduce_min reduce_or reduce_prod reduce_scatter reduce_sum reduce_window_max
reduce_window_sum rem remat2 reshape reshard rev rsqrt scan scatter scatter-add
select_and_scatter_add select_n shard_map sharding_constraint shift_left shift_right_logical sign
sin slice sort split sqrt square squeeze stack stop_gradient sub svd tanh tile top_k transpose
triangular_solve while xor
"""
"""What programs of Equinox, Flax and Optax consist of."""


def test_the_rules_cover_primitives_of_training_steps() -> None:
    assert [name for name in USED.split() if name not in RULES] == []
