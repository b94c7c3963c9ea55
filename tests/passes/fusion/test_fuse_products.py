"""Products that `fuse-products` groups, and programs that it leaves unchanged."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as jnp
from shardir.errors import PipelineError
from shardir.interpret.interpreter import run
from shardir.interpret.random_arguments import random_arguments
from shardir.ir.module import Module, Op
from shardir.ops.contraction.dot import dot
from shardir.ops.control_flow.fused_products import fused_products
from shardir.passes.pipeline import Pipeline
from shardir.text.parser import parse
from shardir.verify.verifier import verify

X = sd.ShapeDtypeStruct((2, 32, 4, 8), np.float32)
SQUARE = sd.ShapeDtypeStruct((64, 64), np.float32)


def fused(function: Callable[..., Any], *args: Any) -> tuple[list[Op], int]:
    """Return the fused products of a traced function and the number of other products, after
    checks of validity and of equal results."""
    module = parse(sd.jit(function).lower(*args).as_text())
    before = Pipeline.parse("inline,cse,dce,fold-views,simplify,cse,dce")(module)
    after = Pipeline.parse("fuse-products,dce")(before)
    verify(after)
    check_equal(before, after)
    ops = list(after.main.body.walk())
    found = [op for op in ops if op.spec is fused_products]
    inside = {inner for op in found for inner in op.blocks[0].ops}
    return found, sum(op.spec is dot and op not in inside for op in ops)


def check_equal(before: Module, after: Module) -> None:
    arguments = random_arguments(before)
    for want, got in zip(run(before, arguments), run(after, arguments), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def counts(function: Callable[..., Any], *args: Any) -> tuple[int, int]:
    found, others = fused(function, *args)
    return len(found), others


def attention(x: Any, **options: Any) -> Any:
    return sd.nn.dot_product_attention(x, x * 2, x, **options)


def written_out(x: Any) -> Any:
    """Compute attention without `nn.dot_product_attention`, with masked scores of -inf."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", x, x) / 4
    mask = jnp.tril(jnp.ones((32, 32), bool))
    weights = sd.nn.softmax(jnp.where(mask, scores, -jnp.inf), axis=-1)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, x)


def loss(function: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda x: jnp.sum(function(x) ** 2)


@pytest.mark.parametrize("function", [attention, written_out])
def test_attention_and_its_gradient(function: Callable[..., Any]) -> None:
    assert counts(function, X) == (1, 0)
    forward, backward = fused(sd.grad(loss(function)), X)[0]
    assert [op.name for op in forward.blocks[0].ops].count("dot") == 2
    assert [op.name for op in backward.blocks[0].ops].count("dot") == 5
    sizes = {np.prod(value.type.shape) for value in backward.operands}
    assert 32 * 32 * 8 not in sizes, "scores are computed again"


def test_masks_are_computed_inside_of_groups_of_loops() -> None:
    """The mask is computed outside of the loop."""
    text = """
func @f(%x: f32[32, 8]) -> (f32[32, 8]) {
  %i = iota(dim=0) : i32[32, 32]
  %j = iota(dim=1) : i32[32, 32]
  %c = ge(%i, %j) : bool[32, 32]
  %n = constant(value=-1e30) : f32[32, 32]
  %y = scan(%x, carries=1, length=2) : f32[32, 8] {
    (%a: f32[32, 8]) =>
    %s = dot(%a, %a, dims="th,sh->ts") : f32[32, 32]
    %t = select(%c, %s, %n) : f32[32, 32]
    %m = max(%t, dims=[1]) : f32[32]
    %b = broadcast(%m, dims=[0]) : f32[32, 32]
    %u = sub(%t, %b) : f32[32, 32]
    %e = exp(%u) : f32[32, 32]
    %o = dot(%e, %a, dims="ts,sh->th") : f32[32, 8]
    yield %o
  }
  return %y
}
"""
    before = parse(text)
    after = Pipeline.parse("fuse-products,dce")(before)
    verify(after)
    check_equal(before, after)
    (op,) = [op for op in after.main.body.walk() if op.spec is fused_products]
    assert {value.type.shape for value in op.operands} == {(32, 8)}


def test_operations_without_kernels_are_not_grouped() -> None:
    text = str(sd.jit(attention).lower(X).as_text())
    before = Pipeline.parse("inline,cse,dce,fold-views,simplify,cse,dce")(parse(text))
    for without, count in ("digamma", 1), ("digamma+exp", 0):
        after = Pipeline.parse(f"fuse-products{{without={without}}}")(before)
        assert [op.spec for op in after.main.body.ops].count(fused_products) == count
    with pytest.raises(PipelineError) as caught:
        Pipeline.parse("fuse-products{without=no}")(before)
    assert str(caught.value) == "no operation is called 'no', which `without` names"


def test_masks_are_computed_inside() -> None:
    ((op,), _) = fused(lambda x: attention(x, is_causal=True, local_window_size=(4, 0)), X)
    assert {value.type.dtype for value in op.operands} == {"f32"}


def test_positions_may_be_compared_along_rows_and_columns() -> None:
    """Both dimensions of the masks are computed from one array, and the mask of packed sequences
    uses one operand twice."""

    def packed(x: Any, segments: Any) -> Any:
        at = jnp.arange(64)
        mask = (at[:, None] >= at[None]) & (segments[:, None] == segments[None])
        return sd.nn.softmax(jnp.where(mask, x @ x.T, -jnp.inf), axis=-1) @ x

    segments = sd.ShapeDtypeStruct((64,), np.int32)
    ((op,), others) = fused(packed, SQUARE, segments)
    assert others == 0
    assert [value.type.dtype for value in op.operands].count("i32") == 2


def test_residuals_are_results_of_the_same_operation() -> None:
    assert counts(lambda x: attention(x, return_residual=True), X) == (1, 0)


def test_products_of_scores_and_their_sums_follow_the_sums() -> None:
    def transposed(x: Any) -> Any:
        weights = sd.nn.softmax(x @ x.T, axis=1)
        return weights.T @ (weights @ x)

    assert counts(transposed, SQUARE) == (2, 0)


def test_loops_and_recomputed_blocks() -> None:
    def layers(x: Any) -> Any:
        def layer(x: Any, _: None) -> tuple[Any, None]:
            return attention(x), None

        return sd.lax.scan(sd.checkpoint(layer), x, None, length=2)[0]

    assert counts(layers, X) == (1, 0)
    assert counts(sd.grad(loss(layers)), X) == (2, 0)


def test_layers_of_a_perceptron_are_not_fused() -> None:
    assert counts(lambda x: jnp.tanh(x @ x) @ x, SQUARE) == (0, 2)


def test_scores_that_are_used_elsewhere_are_not_fused() -> None:
    def weights(x: Any) -> Any:
        p = sd.nn.softmax(x @ x.T, axis=-1)
        return p @ x, p

    assert counts(weights, SQUARE) == (0, 2)

    def transposed(x: Any) -> Any:
        p = sd.nn.softmax(x @ x.T, axis=-1)
        return p @ x + p.T

    assert counts(transposed, SQUARE) == (0, 2)

    def accumulated(x: Any) -> Any:
        p = sd.nn.softmax(x @ x.T, axis=-1)
        return p @ x + jnp.cumsum(p, axis=1)

    assert counts(accumulated, SQUARE) == (0, 2)


def test_operands_are_computed_outside_if_that_reads_less_or_takes_many_operations() -> None:
    def operations(compute: Callable[..., Any], *args: Any) -> list[str]:
        ((op,), _) = fused(lambda x, *y: sd.nn.softmax(x @ x.T + compute(*y), axis=1) @ x, *args)
        return [inner.name for inner in op.blocks[0].ops]

    def polynomial(row: Any) -> Any:
        for number in range(40):
            row = row * 1.5 + number
        return row[:, None]

    row = sd.ShapeDtypeStruct((64,), np.float32)
    assert operations(lambda a: jnp.exp(a) * a, SQUARE, SQUARE).count("mul") == 1
    assert operations(lambda a, b: a * b, SQUARE, SQUARE, SQUARE).count("mul") == 0
    assert operations(polynomial, SQUARE, row).count("mul") == 0
    table = np.arange(64.0 * 64).reshape(64, 64).astype(np.float32)
    assert operations(lambda: table, SQUARE).count("constant") <= 1


def test_short_sequences_and_long_features_are_not_fused() -> None:
    short = sd.ShapeDtypeStruct((2, 8, 4, 8), np.float32)
    assert counts(attention, short) == (0, 2)
    long = sd.ShapeDtypeStruct((1, 16, 1, 1024), np.float32)
    assert counts(attention, long) == (0, 2)
    assert counts(attention, sd.ShapeDtypeStruct((0, 32, 4, 8), np.float32)) == (0, 2)


@pytest.mark.parametrize(("features", "groups"), [(512, 1), (513, 0)])
def test_long_features_of_the_result_are_not_fused(features: int, groups: int) -> None:
    def product(x: Any, values: Any) -> Any:
        return sd.nn.softmax(x @ x.T) @ values

    shapes = (sd.ShapeDtypeStruct((16, size), np.float32) for size in (8, features))
    assert counts(product, *shapes) == (groups, 2 - 2 * groups)


def test_long_sequences_are_fused() -> None:
    """The dimension is longer than features may be."""
    assert counts(attention, sd.ShapeDtypeStruct((1, 520, 1, 4), np.float32)) == (1, 0)


def test_the_softmax_of_narrow_scores_is_not_fused() -> None:
    """The reductions of scores are computed in f32 or f64."""

    def narrow(x: Any) -> Any:
        p = sd.nn.softmax(x @ x.T, axis=-1)
        return p @ x

    assert counts(narrow, sd.ShapeDtypeStruct((64, 64), jnp.bfloat16)) == (0, 2)
