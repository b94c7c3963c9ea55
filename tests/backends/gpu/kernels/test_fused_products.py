"""Kernels of fused products in the Triton interpreter, against programs without fusion."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as jnp
from shardir.backends.gpu.kernels import (
    KernelRefusal,
    KernelText,
    TileSizes,
    find_sum_operands,
    write_kernel,
)
from shardir.backends.gpu.kernels.compiling import compile_ahead
from shardir.backends.gpu.kernels.fused_products.products_group import make_products_group
from shardir.interpret.interpreter import evaluate
from shardir.ir.module import Module, Op
from shardir.ir.types import NUMPY_DTYPES
from shardir.ops.control_flow.fused_products import fused_products
from shardir.passes.pipeline import Pipeline
from shardir.text.parser import parse
from tests.backends.cpu.kernels.fused_products.attention_programs import (
    attention_module,
    fuse_products,
    random_attention,
)
from tests.backends.gpu.kernels.kernel_execution import SMALL_TILES, Array, Interpreter

TOLERANCES = {"f32": 1e-5, "f16": 4e-3, "bf16": 3e-2}
SIZES = {"batch": 1, "rows": 19, "columns": 37, "heads": 2, "groups": 1, "features": 5}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "causal": ("f32", {}, {"is_causal": True}),
    "window": ("f32", {"masked": True}, {"local_window_size": (5, 3)}),
    "bias": ("f32", {"biased": True}, {"is_causal": True, "scale": 0.5}),
    "f16": ("f16", {"biased": True}, {}),
    "bf16": ("bf16", {}, {"is_causal": True}),
}


def products_of(module: Module) -> list[Op]:
    return [op for op in module.main.body.walk() if op.spec is fused_products]


def check(
    interpreter: Interpreter, module: Module, arrays: Sequence[Array], tolerance: float
) -> list[Array]:
    """Compare the kernels of a program with the interpreter of the program without fusion."""
    fused = fuse_products(module, convert_inside=True)
    assert products_of(fused)
    made = interpreter.run(fused, arrays, SMALL_TILES)
    for expected, got in zip(evaluate(module.main, arrays), made, strict=True):
        expected, got = (np.asarray(each, np.float64) for each in (expected, got))
        scale = np.max(np.abs(expected[np.isfinite(expected)]), initial=0)
        np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * scale)
    return made


def check_attention(
    interpreter: Interpreter, arrays: Sequence[Any], gradient: bool = False, **options: Any
) -> list[Array]:
    """Compare the kernels of attention; `None` stands for an absent mask or bias."""
    module = attention_module(arrays, gradient, **options)
    given = [array for array in arrays if array is not None]
    return check(interpreter, module, given, TOLERANCES[module.main.body.params[0].type.dtype])


@pytest.mark.sample(4)
@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_attention_equals_the_program_without_fusion(
    interpreter: Interpreter, case: str, gradient: bool
) -> None:
    dtype, given, options = CASES[case]
    check_attention(interpreter, random_attention(1, dtype, SIZES, **given), gradient, **options)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(40))
def test_random_sizes(interpreter: Interpreter, seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = int(rng.integers(1, 3))
    sizes = {
        "batch": int(rng.integers(2, 4)),
        "rows": int(rng.choice([16, 17, 32, 45])),
        "columns": int(rng.choice([16, 31, 48, 50])),
        "heads": groups * int(rng.integers(1, 3)),
        "groups": groups,
        "features": int(rng.choice([2, 3, 16, 24, 40])),
    }
    dtype = str(rng.choice(list(TOLERANCES)))
    masked, biased, causal, gradient = (bool(each) for each in rng.integers(0, 2, 4))
    arrays = random_attention(seed, dtype, sizes, masked, biased)
    check_attention(interpreter, arrays, gradient, is_causal=causal)


def test_values_that_are_not_finite(interpreter: Interpreter) -> None:
    """A row of -inf is NaN; columns of -inf before the first finite score count nothing."""
    sizes = {**SIZES, "heads": 1}
    arrays = random_attention(4, "f32", sizes, biased=True)
    bias = arrays[4]
    bias[...] = 0
    bias[:, :, 3] = -np.inf
    bias[:, :, 5, :20] = -np.inf
    bias[:, :, 7, 18] = np.inf
    bias[:, :, 9, 2] = np.nan
    bias[:, :, 11, 17:] = -np.inf
    (made,) = check_attention(interpreter, arrays)
    is_nan = np.isnan(made.reshape(19, -1)).any(axis=1)
    assert list(np.flatnonzero(is_nan)) == [3, 7, 9]


def test_rows_without_visible_columns_are_the_mean_of_all_values(interpreter: Interpreter) -> None:
    sizes = {**SIZES, "heads": 1}
    arrays = random_attention(3, "f32", sizes)
    arrays[3] = np.ones((1, 1, 19, 37), bool)
    arrays[3][:, :, [0, 17]] = False
    (made,) = check_attention(interpreter, arrays)
    np.testing.assert_allclose(made[0, 17, 0], np.mean(arrays[2][0, :, 0], axis=0), 1e-5)


def test_zeros_in_place_of_weights_that_are_not_finite(interpreter: Interpreter) -> None:
    x = np.random.default_rng(9).standard_normal((19, 16)).astype(np.float32)
    mask = np.tril(np.ones((19, 19), bool))
    mask[3] = False
    x[17, 0] = np.nan

    def attend(x: Any, mask: Any) -> Any:
        scores = jnp.where(mask, x @ x.T, -jnp.inf)
        return jnp.where(mask, sd.nn.softmax(scores, axis=1), 0) @ jnp.abs(jnp.sign(x[:, 1:]))

    (made,) = check(interpreter, module_of(attend, x, mask), [x, mask], 1e-5)
    assert not made[3].any()
    assert np.isnan(made).any(axis=1).sum() == 2


def test_the_sum_of_a_softmax_may_divide_other_scores(interpreter: Interpreter) -> None:
    x = np.random.default_rng(5).standard_normal((19, 16)).astype(np.float32)

    def attend(x: Any) -> Any:
        scores = x @ x.T
        weights = shifted(scores, jnp.max(scores, axis=1))
        total = jnp.sum(weights, axis=1, keepdims=True)
        return weights / total @ x, scores / total @ x

    check(interpreter, module_of(attend, x), [x], 1e-5)


def test_products_of_f32_and_bf16_are_exact(interpreter: Interpreter) -> None:
    """The kernel reads bf16, and splits the f32 weights into three numbers of 8 bits."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((19, 16)).astype(np.float32)
    values = rng.standard_normal((19, 6)).astype(NUMPY_DTYPES["bf16"])
    values[4, 0], values[5, 1], values[6, 2] = np.inf, -np.inf, np.nan
    values[:, 3] = 1e38

    def attend(x: Any, values: Any) -> Any:
        return sd.nn.softmax(x @ x.T, axis=1) @ values.astype(np.float32)

    module = module_of(attend, x, values)
    (made,) = check(interpreter, module, [x, values], 1e-6)
    assert np.isposinf(made[:, 0]).all()
    assert np.isneginf(made[:, 1]).all()
    assert np.isnan(made[:, 2]).all()
    (op,) = products_of(fuse_products(module, convert_inside=True))
    kernel = write_kernel(op, "attend")
    assert isinstance(kernel, KernelText)
    assert kernel.launches[0].pointers["values_ptr"] == "*bf16"
    assert "multiply_split(" in kernel.text


def test_nan_weights_with_any_bits_give_nan(interpreter: Interpreter) -> None:
    """The first 16 bits of this NaN are those of an infinite number."""
    x = np.random.default_rng(3).standard_normal((19, 16)).astype(np.float32)
    weights = np.zeros((19, 19), np.float32)
    weights[2, 5] = np.array(0x7F800001, np.uint32).view(np.float32)
    values = np.ones((19, 6), NUMPY_DTYPES["bf16"])

    def attend(x: Any, weights: Any, values: Any) -> Any:
        chosen = jnp.where(weights == 0, sd.nn.softmax(x @ x.T, axis=1), weights)
        return chosen @ values.astype(np.float32)

    module = module_of(attend, x, weights, values)
    (op,) = products_of(fuse_products(module, convert_inside=True))
    kernel = write_kernel(op, "attend")
    assert isinstance(kernel, KernelText)
    assert "multiply_split(" in kernel.text
    (made,) = check(interpreter, module, [x, weights, values], 1e-6)
    assert np.isnan(made[2]).all()
    assert np.isfinite(np.delete(made, 2, axis=0)).all()


def module_of(function: Callable[..., Any], *arrays: Array) -> Module:
    """Return the program of a function before fusion."""
    with sd.enable_x64(True):
        module = sd.parse(sd.jit(function).lower(*arrays).as_text())
    return Pipeline.parse("cse,dce,fold-views,simplify,cse,dce")(module)


def shifted(scores: Any, largest: Any) -> Any:
    return jnp.exp(scores - largest[:, None])


SCORE_FUNCTIONS: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "softmax": (1, lambda s: sd.nn.softmax(s, axis=1)),
    "softmax of a soft cap": (1, lambda s: sd.nn.softmax(3 * jnp.tanh(s / 3), axis=1)),
    "masked exponentials": (
        1,
        lambda s: (
            jnp.where(jnp.cos(s) > 0, shifted(s, jnp.max(s, axis=1)), 0)
            / jnp.sum(shifted(s, jnp.max(s, axis=1)), axis=1, keepdims=True)
        ),
    ),
    "dropout": (2, lambda s: jnp.where(jnp.cos(s) > 0, sd.nn.softmax(s, axis=1), 0) / 0.5),
    "a multiple that is too large": (2, lambda s: sd.nn.softmax(s, axis=1) * 1e6),
    "a sum without a maximum": (
        2,
        lambda s: jnp.exp(s) / jnp.sum(jnp.exp(s), axis=1, keepdims=True),
    ),
    "the maximum of other scores": (2, lambda s: shifted(s, jnp.max(s * s, axis=1))),
    "the minimum": (2, lambda s: jnp.abs(s - jnp.min(s, axis=1, keepdims=True))),
    "the sum of other scores": (
        3,
        lambda s: (
            jnp.exp(s - jnp.max(s, axis=1, keepdims=True))
            / jnp.sum(jnp.abs(s - jnp.max(s, axis=1, keepdims=True)), axis=1, keepdims=True)
        ),
    ),
    "two softmaxes": (2, lambda s: sd.nn.softmax(sd.nn.softmax(s, axis=1), axis=1)),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", SCORE_FUNCTIONS)
def test_passes_of_functions_of_scores(interpreter: Interpreter, name: str) -> None:
    passes, function = SCORE_FUNCTIONS[name]
    x = np.random.default_rng(8).uniform(0.1, 1, (35, 16)).astype(np.float32)
    module = module_of(lambda x: function(x @ x.T) @ x, x)
    check(interpreter, module, [x], 1e-5)
    (op,) = products_of(fuse_products(module))
    assert len(make_products_group(op, "group").passes) == passes


ROW_SUM = """
func @f(%x: f32[3, 18, 4], %k: f32[20, 4], %g: f32[3, 18, 6]) -> (f32[20, 6]) {
  %y = fused_products(%x, %k, %g) : f32[20, 6] {
    (%p: f32[3, 18, 4], %q: f32[20, 4], %r: f32[3, 18, 6]) =>
    %s = dot(%p, %q, dims="bth,sh->bts") : f32[3, 18, 20]
    %i = iota(dim=0) : i64[3, 18, 20]
    %f = convert(%i) : f32[3, 18, 20]
    %t = mul(%s, %f) : f32[3, 18, 20]
    %m = max(%t, dims=[2]) : f32[3, 18]
    %n = broadcast(%m, dims=[0, 1]) : f32[3, 18, 20]
    %u = sub(%t, %n) : f32[3, 18, 20]
    %y.1 = dot(%u, %r, dims="bts,btg->sg") : f32[20, 6]
    yield %y.1
  }
  return %y
}
"""


def test_row_sums_over_batch_loops(interpreter: Interpreter) -> None:
    """The kernel loops over the batch loop, whose index the scores use."""
    module = parse(ROW_SUM)
    rng = np.random.default_rng(2)
    arrays = [rng.standard_normal(p.type.shape).astype(np.float32) for p in module.main.body.params]
    (made,) = interpreter.run(module, arrays, SMALL_TILES)
    np.testing.assert_allclose(made, evaluate(module.main, arrays)[0], rtol=1e-4, atol=1e-5)


def only_kernel(*arrays: Any, gradient: bool = False) -> KernelText | KernelRefusal:
    """Return the kernels of attention, or of its gradient after the forward kernel."""
    given: list[Any] = [*arrays, None, None]
    with sd.enable_x64(True):
        module = fuse_products(attention_module(given, gradient), convert_inside=True)
    return write_kernel(products_of(module)[-1], "attend", TileSizes())


def describe(*shape: int, dtype: str = "f32") -> Any:
    return sd.ShapeDtypeStruct(shape, NUMPY_DTYPES[dtype])


def test_refusals() -> None:
    long = [describe(1, 32, 1, 64), *[describe(1, 65536, 1, 64)] * 2]
    with sd.enable_x64(True):
        double = [describe(1, 64, 1, 64, dtype="f64")] * 3
    assert only_kernel(*double) == KernelRefusal("Triton 3.6 does not compile all products of f64")
    module = fuse_products(attention_module([describe(1, 64, 1, 512)] * 3 + [None, None], False))
    (wide,) = products_of(parse(str(module).replace("512]", "1024]").replace("512,", "1024,")))
    assert write_kernel(wide, "attend", TileSizes()) == KernelRefusal(
        "tiles of 1024 features do not fit the shared memory of a program"
    )
    assert only_kernel(*long) == KernelRefusal(
        "it computes 2097152 scores one after the other in 1 program"
    )


def test_divisions_by_the_sum_of_a_softmax_are_products() -> None:
    """The gradient divides by a result of the forward kernel, whose inverse it computes once per
    row; the softmax contains an exponential that is 1, so the inverse is a normal number."""

    def step(q: Any, k: Any, v: Any) -> Any:
        return sd.value_and_grad(lambda q: sum_of_squares(sd.nn.dot_product_attention(q, k, v)))(q)

    module = module_of(step, *random_attention(1, "f32", SIZES)[:3])
    forward, backward = products_of(fuse_products(module, convert_inside=True))
    makers = dict.fromkeys(forward.results, forward)
    (number,) = find_sum_operands(backward, makers)
    assert backward.operands[number] in forward.results
    exact = write_kernel(backward, "attend")
    kernel = write_kernel(backward, "attend", sums=frozenset([number]))
    assert isinstance(exact, KernelText)
    assert isinstance(kernel, KernelText)
    assert " * tl.div_rn(1.0, " not in exact.text
    assert kernel.text.count(" * tl.div_rn(1.0, ") == exact.text.count("tl.div_rn(") > 0


def sum_of_squares(x: Any) -> Any:
    return jnp.sum(x * x)


def test_features_are_innermost_in_memory() -> None:
    """The launch copies a matrix with another order of dimensions."""
    q = np.zeros((2, 32, 16), np.float32)

    def attend(q: Any, k: Any, v: Any) -> Any:
        return sd.nn.softmax(q @ k, axis=-1) @ v

    (op,) = products_of(fuse_products(module_of(attend, q, q.transpose(0, 2, 1), q)))
    kernel = write_kernel(op, "attend")
    assert isinstance(kernel, KernelText)
    assert "k = k.permute(0, 2, 1).contiguous()" in kernel.launch.splitlines()


def test_kernels_allocate_no_scores() -> None:
    """The gradient allocates its results and one value of each row."""
    kernel = only_kernel(*[describe(1, 4096, 8, 64, dtype="bf16")] * 3, gradient=True)
    assert isinstance(kernel, KernelText)
    shapes = [line.partition("empty(")[2] for line in kernel.launch.splitlines() if "empty" in line]
    assert [shape.partition("), ")[0] for shape in shapes] == [
        "(4096, 8, 64",
        "(4096, 8, 64",
        "(4096, 8, 64",
        "(8, 4096",
    ]


@pytest.mark.long
@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("features", [64, 128, 256])
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_kernels_compile(dtype: str, features: int, gradient: bool) -> None:
    arrays = [describe(2, 1000, 4, features, dtype=dtype)] * 3
    kernel = only_kernel(*arrays, gradient=gradient)
    assert isinstance(kernel, KernelText)
    for capability in (80, 90, 100):
        assert all(compile_ahead(kernel, capability).values())
