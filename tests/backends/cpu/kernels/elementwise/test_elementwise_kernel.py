"""The text of elementwise kernels: only the required loops and functions."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as jnp
from shardir import ops as ops  # declares the operations
from shardir.backends.cpu.codegen.target import host_machine
from shardir.backends.cpu.kernels.elementwise.math_inlining import MAX_INLINED_BODY_STEPS
from shardir.backends.cpu.kernels.elementwise.rules import lower_loop_nest
from shardir.interpret.interpreter import run
from shardir.ir.operation import OPS
from shardir.ir.types import TensorType
from shardir.passes.fusion.fuse import Fuse
from tests.backends.cpu.kernels.elementwise.fused_execution import (
    offset_from_cache_line,
    run_with_kernels,
    strided,
)
from tests.backends.cpu.phase_runner import lower_and_run, make_op


def _text(x: Any, out: Any) -> str:
    (phase,) = (
        lower_and_run(lower_loop_nest, make_op(OPS["exp"], TensorType(x.shape, "f32")), [x], [out])
        or ()
    )
    return phase.kernel.text(host_machine())


def test_a_contiguous_kernel_has_one_loop() -> None:
    x = np.linspace(-3, 3, 40 * 64, dtype=np.float32).reshape(40, 64)
    flat, nested = np.zeros_like(x), np.zeros((40, 65), np.float32)[:, :64]
    texts = _text(x, flat), _text(x, nested)
    assert [text.count("icmp slt") for text in texts] == [1, 4]
    np.testing.assert_array_equal(nested, flat)
    np.testing.assert_allclose(flat, np.exp(x), rtol=1e-6)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("size", [1, 5, 64, 70_001])
def test_kernels_are_divided_into_tasks_for_any_layout(size: int, workers: int) -> None:
    def scaled_sine(x: Any, y: Any) -> Any:
        return jnp.sin(x) * y + jnp.arange(size, dtype=jnp.float32)

    rng = np.random.default_rng(size)
    args = [rng.normal(size=size).astype(np.float32) for _ in range(2)]
    module = Fuse()(sd.jit(scaled_sine).lower(*args).compile().module)
    expected = np.sin(args[0].astype("d")) * args[1] + np.arange(size)
    for lay in (np.asarray, strided, lambda array: strided(array[::-1])[::-1]):
        (made,) = run_with_kernels(module, args, lay, workers)
        np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)


def _long(x: Any) -> Any:
    total = jnp.exp(x)
    for k in range(MAX_INLINED_BODY_STEPS):
        total = total * (0.5 + 0.01 * k) - x
    return total


def test_a_long_body_calls_functions_and_is_not_duplicated() -> None:
    """The loop is not duplicated although streaming stores need an aligned start."""
    x = np.linspace(-2, 2, 128 * 64, dtype=np.float32)
    module = Fuse()(sd.jit(_long).lower(x).compile().module)
    (expected,) = run(module, [x])
    (op,) = module.main.body.ops
    machine = replace(host_machine(), shared_cache_bytes=1)
    out = offset_from_cache_line(x, skip=0)
    (phase,) = lower_and_run(lower_loop_nest, op, [x], [out], machine=machine) or ()
    text = phase.kernel.text(host_machine())
    assert "!nontemporal" in text
    assert text.count("fmul") == MAX_INLINED_BODY_STEPS
    assert text.count("alwaysinline") == 0
    for skip in (0, 1):
        (made,) = run_with_kernels(
            module, [x], partial(offset_from_cache_line, skip=skip), machine=machine
        )
        np.testing.assert_allclose(made, expected, rtol=1e-5)
