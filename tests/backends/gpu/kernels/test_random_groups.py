"""Random groups: kernels in the Triton interpreter give the results of the reference."""

import numpy as np
from hypothesis import HealthCheck, Phase, assume, given, settings, strategies as st

from shardir.interpret.interpreter import run
from shardir.ir.module import Function, Module
from shardir.ir.types import COMPLEX
from shardir.passes.fusion.fuse import fuse
from tests.backends.cpu.kernels.elementwise.test_random_groups import (
    integer_arguments,
    random_group_functions,
)
from tests.backends.gpu.kernels.kernel_execution import SMALL_TILES, Interpreter

group_settings = settings(
    max_examples=max(settings().max_examples // 5, 20), deadline=None, derandomize=True,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


def check_group(interpreter: Interpreter, function: Function, seed: int) -> None:
    assume(all(value.type.dtype not in COMPLEX for value in function.body.values()))
    module = Module((), (function,))
    args = integer_arguments(function, seed)
    results = zip(run(module, args), interpreter.run(fuse(module), args, SMALL_TILES), strict=True)
    for want, got in results:
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        expected, actual = want.astype(np.float64), got.astype(np.float64)
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@group_settings
@given(random_group_functions(), st.integers(0, 99))
def test_kernels_of_random_groups_give_the_reference_results(
    interpreter: Interpreter, function: Function, seed: int
) -> None:
    check_group(interpreter, function, seed)
