"""IREE compiles our StableHLO text for CPUs, and computes equal numbers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import lax, nn, random
from shardir.export import export

compiler = pytest.importorskip("iree.compiler", reason="IREE is not installed")
runtime = pytest.importorskip("iree.runtime", reason="IREE is not installed")
RNG = np.random.default_rng(0)


def draw(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = snp.einsum("hqd,hkd->hqk", q, k) / 4.0
    visible = snp.where(snp.tril(snp.ones((8, 8), bool)), scores, -1e9)
    return snp.einsum("hqk,hkd->hqd", nn.softmax(visible, axis=-1), v)


def step(x: Any, w: Any, v: Any, y: Any) -> Any:
    def loss(params: Any) -> Any:
        scores = nn.log_softmax(nn.relu(x @ params[0]) @ params[1])
        return -snp.mean(snp.take_along_axis(scores, y[:, None], 1))

    value, slopes = sd.value_and_grad(loss)((w, v))
    return value, [p - 0.1 * slope for p, slope in zip((w, v), slopes, strict=True)]


def convolution(x: Any, w: Any) -> Any:
    layout = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=layout)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "attention": (attention, (draw(4, 8, 16), draw(4, 8, 16), draw(4, 8, 16))),
    "training step": (step, (draw(8, 16), draw(16, 32), draw(32, 4), np.arange(8, dtype="i") % 4)),
    "convolution": (convolution, (draw(2, 8, 8, 3), draw(3, 3, 3, 4))),
    "loop": (
        lambda x, w: lax.scan(lambda c, a: (snp.tanh(c @ w + a), c.sum()), snp.zeros(4), x),
        (draw(5, 4), draw(4, 4)),
    ),
    "sort": (lambda x: (snp.sort(x, axis=1), snp.argsort(x, axis=1)), (draw(8, 16),)),
    "scatter": (
        lambda x, i, u: x.at[i].add(u),
        (draw(8, 4), np.array([1, 5, 1], np.int32), draw(3, 4)),
    ),
    "random numbers": (
        lambda key: random.normal(random.wrap_key_data(key), (16,)),
        (np.array([0, 42], np.uint32),),
    ),
    "booleans": (lambda x: (x + (x > 1), snp.any(x)), (np.array([True, False]),)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_iree_computes_our_numbers(name: str) -> None:
    function, args = PROGRAMS[name]
    compiled = compiler.compile_str(
        export(sd.jit(function))(*args).mlir_module(),
        input_type="stablehlo",
        target_backends=["llvm-cpu"],
    )
    context = runtime.SystemContext(config=runtime.Config("local-sync"))
    context.add_vm_module(runtime.VmModule.copy_buffer(context.instance, compiled))
    found = context.modules.module.main(*args)
    found = found if isinstance(found, tuple | list) else [found]
    expected = sd.tree_util.tree_leaves(sd.jit(function)(*args))
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=2e-4, atol=2e-5)
