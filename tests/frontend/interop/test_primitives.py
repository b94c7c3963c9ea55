"""Every rule computes what JAX's primitive does, and has its gradient."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardir as sd
from shardir.interop.jax import from_jax
from tests.frontend.interop.primitives import PROGRAMS, Program


def agree(found: Any, wanted: Any) -> None:
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        first, second = np.asarray(a), np.asarray(b)
        assert (first.shape, first.dtype) == (second.shape, second.dtype)
        wide = np.complex128 if second.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(first.astype(wide), second.astype(wide), rtol=3e-5, atol=3e-5)


@pytest.mark.parametrize("program", PROGRAMS, ids=[each.name for each in PROGRAMS])
def test_a_program_computes_what_it_does_in_jax(program: Program) -> None:
    agree(from_jax(program.function)(*program.args), jax.jit(program.function)(*program.args))


SMOOTH = [each for each in PROGRAMS if each.smooth]


@pytest.mark.parametrize("program", SMOOTH, ids=[each.name for each in SMOOTH])
def test_a_program_has_the_gradient_that_it_has_in_jax(program: Program) -> None:
    moving = tuple(i for i, x in enumerate(program.args) if x.dtype == np.float32)

    def total(*args: Any) -> Any:
        leaves = jax.tree.leaves(program.function(*args))
        return sum(
            (jnp.sum(jnp.sin(x)) for x in leaves if x.dtype == jnp.float32), start=jnp.float32(0)
        )

    if not moving:
        return
    found = sd.grad(from_jax(total), argnums=moving)(*program.args)
    agree(found, jax.grad(total, argnums=moving)(*program.args))
