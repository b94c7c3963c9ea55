"""Random groups with random layouts: kernels give the results of the interpreter."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from shardir import ops as ops  # declares the operations
from shardir.backends.cpu.codegen.target import HostDescription, host_machine
from shardir.backends.cpu.kernels.elementwise import (
    reduction,
    split_reduction,
)
from shardir.backends.cpu.kernels.elementwise.rules import has_kernel
from shardir.interpret.interpreter import run
from shardir.ir.builder import Builder
from shardir.ir.module import Function, Module, Value
from shardir.ir.operation import OPS
from shardir.ir.types import COMPLEX, TensorType
from shardir.passes.fusion.fuse import fuse
from shardir.verify.verifier import verify
from tests.backends.cpu.kernels.elementwise.fused_execution import (
    LayoutFunction,
    dense,
    reversed_dims,
    run_with_kernels,
    strided,
)
from tests.dtype_groups import FLOATS

Array = npt.NDArray[Any]
UNARY_OPERATIONS = ("neg", "abs", "sign", "stop_gradient")
BINARY_OPERATIONS = ("add", "sub", "mul", "maximum", "minimum")
COMPARISONS = ("eq", "lt", "ge")
DTYPES = ("f32", "f64", "i32", "u8", "bf16", "f16", "i64", "bool", "c64")


@st.composite
def random_group_functions(draw: st.DrawFn) -> Function:
    """Draw a few operations on values of one shape and on their reductions."""
    b = Builder()
    shape = tuple(draw(st.lists(st.sampled_from((1, 2, 3, 7, 16, 33, 40)), min_size=1, max_size=3)))
    dims = tuple(d for d in range(len(shape)) if draw(st.booleans()))
    kept = tuple(d for d in range(len(shape)) if d not in dims)
    dtype = draw(st.sampled_from(DTYPES))
    whole = TensorType(shape, dtype)
    params = [b.param(whole), b.param(whole.with_shape([shape[d] for d in kept]))]
    seen: list[Value] = [params[0], b.broadcast(params[1], dims=kept, result=whole)]
    if dtype != "bool":
        seen.append(b.iota(dim=draw(st.integers(0, len(shape) - 1)), result=whole))
    seen.append(b.full(1, whole))

    def pick(values: list[Value]) -> Value:
        return values[draw(st.integers(0, len(values) - 1))]

    for _ in range(draw(st.integers(2, 8))):
        x, y = pick(seen), pick(seen)
        kind = draw(st.sampled_from(("unary", "binary", "binary", "select", "reduce", "convert")))
        if dtype == "bool":
            logic = {"unary": "not", "binary": "xor", "reduce": "any"}
            name = logic.get(kind, "and")
        elif dtype in COMPLEX:
            name = {"unary": "neg", "reduce": "sum"}.get(
                kind, draw(st.sampled_from(BINARY_OPERATIONS[:3]))
            )
        else:
            name = draw(
                st.sampled_from(
                    {"unary": UNARY_OPERATIONS, "reduce": ("sum", "max", "min")}.get(
                        kind, BINARY_OPERATIONS
                    )
                )
            )
        if kind == "select" and dtype not in COMPLEX:
            seen.append(b.select(b.emit(OPS[draw(st.sampled_from(COMPARISONS))], x, y), x, y))
        elif kind == "convert" and dtype in FLOATS:
            other = draw(st.sampled_from(("f32", "bf16", "i32")))
            turned = b.convert(x, result=whole.with_dtype(other))
            seen.append(b.convert(turned, result=whole))
        elif name in ("any", "sum", "max", "min"):
            less = b.emit(OPS[name], x, dims=dims)
            if draw(st.booleans()):
                less = b.emit(OPS["not" if dtype == "bool" else "neg"], less)
            seen.append(b.broadcast(less, dims=kept, result=whole))
        elif name in ("not", *UNARY_OPERATIONS):
            seen.append(b.emit(OPS[name], x))
        else:
            seen.append(b.emit(OPS[name], x, y))
    returns = [seen[-1], pick(seen)]
    return Function("f", b.block(params, returns), (None, None))


def integer_arguments(function: Function, seed: int) -> list[Array]:
    """Return small integers, whose sums do not depend on the order."""
    rng = np.random.default_rng(seed)
    return [
        rng.integers(0 if v.type.dtype in ("u8", "bool") else -2, 3, v.type.shape).astype(
            v.type.numpy
        )
        for v in function.body.params
    ]


LAYOUTS: tuple[LayoutFunction, ...] = (dense, reversed_dims, strided)


def check_group(
    function: Function,
    layout: LayoutFunction,
    seed: int,
    machine: HostDescription | None = None,
) -> None:
    module = Module((), (function,))
    verify(module)
    made = fuse(module, has_kernel)
    verify(made)
    args = integer_arguments(function, seed)
    results = run_with_kernels(made, args, layout, machine=machine)
    for want, got in zip(run(module, args), results, strict=True):
        if want.dtype.kind in "biu":
            np.testing.assert_array_equal(got, want)
        else:
            wide = np.complex128 if want.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=1e-5, atol=1e-5)


group_settings = settings(
    max_examples=60, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck), derandomize=True,
)  # fmt: skip


@group_settings
@given(random_group_functions(), st.sampled_from(LAYOUTS), st.integers(0, 99))
def test_kernels_of_random_groups_give_the_reference_results(
    function: Function, layout: LayoutFunction, seed: int
) -> None:
    check_group(function, layout, seed)


@pytest.fixture
def _force_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduction, "MIN_SPLIT_ELEMENTS", 1)
    monkeypatch.setattr(reduction, "MIN_UNSPLIT_BLOCKS", 1 << 40)
    monkeypatch.setattr(split_reduction, "BLOCK_ELEMENTS", 50)


@pytest.mark.usefixtures("_force_split")
@group_settings
@given(random_group_functions(), st.sampled_from(LAYOUTS), st.integers(0, 99))
def test_split_kernels_of_random_groups_give_the_reference_results(
    function: Function, layout: LayoutFunction, seed: int
) -> None:
    check_group(function, layout, seed)


@settings(group_settings, max_examples=25)
@given(random_group_functions(), st.sampled_from(LAYOUTS), st.integers(0, 99))
def test_kernels_without_masks_give_the_reference_results(
    function: Function, layout: LayoutFunction, seed: int
) -> None:
    check_group(function, layout, seed, replace(host_machine(), features=""))
