"""Programs lowered by JAX parse, compute the results of JAX, and lower back to JAX."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jaxlib")

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.mlir import ir

from shardir.interpret.interpreter import run
from shardir.ops.opaque import unknown_operations
from shardir.stablehlo.printer import show
from shardir.stablehlo.reader import read
from shardir.verify.verifier import verify
from tests.shardy.oracle import context

X = np.linspace(-2, 2, 48, dtype=np.float32).reshape(8, 6)
AT = np.array([3, 0, 5, 7], np.int32)
IMAGE = np.linspace(-1, 1, 2 * 8 * 8 * 3, dtype=np.float32).reshape(2, 8, 8, 3)
KERNEL = np.linspace(-1, 1, 3 * 3 * 3 * 4, dtype=np.float32).reshape(3, 3, 3, 4)


def _attention(x: Any) -> Any:
    scores = jnp.einsum("bd,cd->bc", x, x) / np.sqrt(6)
    mask = jnp.tril(jnp.ones((8, 8), bool))
    return jax.nn.softmax(jnp.where(mask, scores, -1e9)) @ jax.nn.gelu(x)


def _pooled(image: Any, kernel: Any) -> Any:
    made = lax.conv_general_dilated(
        image, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return lax.reduce_window(jax.nn.relu(made), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1),
                             "VALID")  # fmt: skip


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "attention": (_attention, (X,)),
    "attention's gradient": (jax.grad(lambda x: _attention(x).sum()), (X,)),
    "convolution": (_pooled, (IMAGE, KERNEL)),
    "convolution's gradient": (
        jax.grad(lambda *args: (_pooled(*args) ** 2).sum(), argnums=(0, 1)),
        (IMAGE, KERNEL),
    ),
    "scan": (lambda x: lax.scan(lambda c, row: (jnp.tanh(c + row), c.sum()), x[0], x), (X,)),
    "while": (lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, x)),
              (X,)),
    "cond": (lambda x: lax.cond(x[0, 0] > 0, lambda x: x + 1, lambda x: x * 2, x), (X,)),
    "switch": (lambda i, x: lax.switch(i[1], [lambda x: x, lambda x: -x], x), (AT, X)),
    "order": (
        lambda x: (
            jnp.argsort(x), jnp.sort(x, 0), jnp.argmax(x, 1), jnp.argmin(x, 0), lax.top_k(x, 2),
        ),
        (X,),
    ),
    "order by two": (lambda x: lax.sort((jnp.round(x), x), num_keys=2), (X,)),
    "running": (
        lambda x: (jnp.cumsum(x, 0), jnp.cumprod(x, 1), lax.cummax(x, reverse=True)),
        (X,),
    ),
    "lookup": (
        lambda x, i: (x[i], x.at[i].add(1.0), x.at[i].set(0.0), jnp.take(x, i % 6, axis=1)),
        (X, AT),
    ),
    "slices": (
        lambda x, i: (
            lax.dynamic_slice(x, (i[0], 0), (2, 6)),
            lax.dynamic_update_slice(x, x[:2], (i[0], i[1])),
            x[::2, 1:],
            jnp.pad(x, ((1, 2), (0, 3))),
            jnp.flip(x, 1),
        ),
        (X, AT),
    ),
    "reductions": (
        lambda x: (x.prod(0), x.max(), x.min(1), jnp.any(x > 0, 1), jnp.all(x > 0), x.mean()),
        (X,),
    ),
    "random numbers": (lambda k: jax.random.uniform(k, (8, 6)), (np.array([1, 2], np.uint32),)),
}  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("generic", [False, True], ids=["pretty", "generic"])
def test_results_agree_with_jax(name: str, generic: bool) -> None:
    program, args = PROGRAMS[name]
    lowered = jax.jit(program).lower(*args)
    asm = lowered.compiler_ir().operation.get_asm(print_generic_op_form=generic)
    module = read(asm)
    verify(module)

    assert unknown_operations(module) == ()
    expected = jax.tree.leaves(jax.jit(program)(*args))
    for got, want in zip(run(module, list(args)), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=1e-5)


def test_jax_parses_opaque_text_operations() -> None:
    lowered = jax.jit(lambda x: (jnp.fft.fft(x), jnp.linalg.cholesky(x @ x.T))).lower(X)
    text = show(read(lowered.as_text()))
    with context(), ir.Location.unknown():
        assert ir.Module.parse(text).operation.verify()
