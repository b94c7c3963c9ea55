"""`widen-reductions` and the setting `grad_reduce_dtype`: sums over devices in a wider float."""

from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.passes import WidenReductions
from shardir.passes.collectives.widen_reductions import widen_gradient_sums
from shardir.passes.pipeline import Pipeline
from shardir.sharding import NamedSharding, PartitionSpec as P
from shardir.text.parser import parse
from shardir.verify.verifier import verify

HEAD = """\
mesh @m = [x=4]

spmd func @f(
  %p: bf16[4, 8] of bf16[16@x, 8@-],
"""


def rewritten(lines: str, **options: str) -> str:
    """Return the operations of a function after the pass."""
    module = WidenReductions(**options)(parse(HEAD + lines + "}\n"))
    verify(module)
    return str(module).removeprefix(HEAD).removesuffix("}\n")


def test_linear_operations_before_a_collective_are_widened() -> None:
    assert (
        rewritten("""\
) -> (bf16[2, 4] of bf16[8@x, 4@-]) {
  %a = dot(%p, %p, dims="bi,bh->ih") : bf16[8, 8]
  %b = slice(%a, starts=[0, 0], strides=[1, 1]) : bf16[8, 4]
  %c = neg(%b) : bf16[8, 4]
  %d = reduce-scatter(%c, dim=0, axes=[x], op=add) : bf16[2, 4]
  return %d
""")
        == """\
) -> (bf16[2, 4] of bf16[8@x, 4@-]) {
  %a = dot(%p, %p, dims="bi,bh->ih") : f32[8, 8]
  %b = slice(%a, starts=[0, 0], strides=[1, 1]) : f32[8, 4]
  %c = neg(%b) : f32[8, 4]
  %d.wide = reduce-scatter(%c, dim=0, axes=[x], op=add) : f32[2, 4]
  %d = convert(%d.wide) : bf16[2, 4]
  return %d
"""
    )


def test_conversions_to_other_floats_do_not_round_the_sum_before() -> None:
    """A conversion to a float of as many bits, or to integers, converts the narrow sum."""
    assert (
        rewritten(
            """\
) -> (f32[8] of f32[8@-], f64[8] of f64[8@-], f16[8] of f16[8@-], i32[8] of i32[8@-]) {
  %a = sum(%p, dims=[0]) : bf16[8]
  %b = all-reduce(%a, axes=[x], op=add) : bf16[8]
  %c = convert(%b) : f32[8]
  %d = convert(%b) : f64[8]
  %e = convert(%b) : f16[8]
  %f = convert(%b) : i32[8]
  return %c, %d, %e, %f
""",
            dtype="f64",
        )
        == """\
) -> (f32[8] of f32[8@-], f64[8] of f64[8@-], f16[8] of f16[8@-], i32[8] of i32[8@-]) {
  %p.wide = convert(%p) : f64[4, 8]
  %a = sum(%p.wide, dims=[0]) : f64[8]
  %d = all-reduce(%a, axes=[x], op=add) : f64[8]
  %b = convert(%d) : bf16[8]
  %c = convert(%d) : f32[8]
  %e = convert(%b) : f16[8]
  %f = convert(%b) : i32[8]
  return %c, %d, %e, %f
"""
    )


def test_products_of_partial_sums_and_numbers_are_widened() -> None:
    """A product with an array stays narrow: it may itself be a partial sum."""
    assert (
        rewritten("""\
) -> (bf16[8, 8] of bf16[8@-, 8@-], bf16[8] of bf16[8@-]) {
  %a = dot(%p, %p, dims="bi,bh->ih") : bf16[8, 8]
  %n = constant(value=0.5) : bf16[]
  %k = broadcast(%n, dims=[]) : bf16[8, 8]
  %c = mul(%k, %a) : bf16[8, 8]
  %d = all-reduce(%c, axes=[x], op=add) : bf16[8, 8]
  %e = sum(%p, dims=[0]) : bf16[8]
  %f = mul(%e, %e) : bf16[8]
  %g = all-reduce(%f, axes=[x], op=add) : bf16[8]
  return %d, %g
""")
        == """\
) -> (bf16[8, 8] of bf16[8@-, 8@-], bf16[8] of bf16[8@-]) {
  %a = dot(%p, %p, dims="bi,bh->ih") : f32[8, 8]
  %n = constant(value=0.5) : bf16[]
  %k = broadcast(%n, dims=[]) : bf16[8, 8]
  %k.wide = convert(%k) : f32[8, 8]
  %c = mul(%k.wide, %a) : f32[8, 8]
  %d.wide = all-reduce(%c, axes=[x], op=add) : f32[8, 8]
  %d = convert(%d.wide) : bf16[8, 8]
  %e = sum(%p, dims=[0]) : bf16[8]
  %f = mul(%e, %e) : bf16[8]
  %f.wide = convert(%f) : f32[8]
  %g.wide = all-reduce(%f.wide, axes=[x], op=add) : f32[8]
  %g = convert(%g.wide) : bf16[8]
  return %d, %g
"""
    )


@pytest.mark.parametrize(
    ("operation", "widened"),
    [
        ("mul(%s, %n)", False),
        ("mul(%s, %k)", True),
        ("mul(%s, %array)", False),
        ("dynamic_slice(%s, %i)", False),
        ("all-gather(%part, dim=0, axes=[x:(1)2])", False),
    ],
)
def test_operands_that_are_no_partial_sums(operation: str, widened: bool) -> None:
    """The last operation before the collective has other operands, or is between devices."""
    text = rewritten(
        f"""\
  %n: bf16[8] of bf16[8@-],
  %i: i32[] of i32[],
) -> (bf16[8] of bf16[8@-]) {{
  %s = sum(%p, dims=[0]) : bf16[8]
  %part = slice(%s, starts=[0], strides=[1]) : bf16[4]
  %k = constant(value=2.0) : bf16[8]
  %array = constant(value=dense(bf16, [1, 2, 3, 4, 5, 6, 7, 8])) : bf16[8]
  %m = {operation} : bf16[8]
  %u = all-reduce(%m, axes=[x:(2)2], op=add) : bf16[8]
  return %u
}}
""".removesuffix("}\n")
    )
    assert ("%m.wide = convert(%m)" not in text) == widened


def test_products_with_a_computed_number_are_widened() -> None:
    text = rewritten("""\
  %n: bf16[] of bf16[],
) -> (bf16[] of bf16[]) {
  %s = dot(%p, %p, dims="ij,ij->") : bf16[]
  %k = exp(%n) : bf16[]
  %m = mul(%s, %k) : bf16[]
  %u = all-reduce(%m, axes=[x], op=add) : bf16[]
  return %u
""")
    assert '%s = dot(%p, %p, dims="ij,ij->") : f32[]' in text
    assert "%m = mul(%s, %k.wide) : f32[]" in text


def test_sums_of_integers_do_not_change() -> None:
    lines = """\
) -> (i8[4, 8] of i8[4@-, 8@-]) {
  %w = convert(%p) : i8[4, 8]
  %u = all-reduce(%w, axes=[x], op=add) : i8[4, 8]
  return %u
"""
    assert rewritten(lines) == lines


UNCHANGED = """\
) -> (f32[] of f32[], bf16[8] of bf16[8@-], bf16[32, 8] of bf16[32@-, 8@-]) {
  %w = convert(%p) : f32[4, 8]
  %s = sum(%w, dims=[0, 1]) : f32[]
  %t = all-reduce(%s, axes=[x], op=add) : f32[]
  %m = max(%p, dims=[0]) : bf16[8]
  %n = all-reduce(%m, axes=[x], op=max) : bf16[8]
  %q = concatenate(%p, %p, dim=0) : bf16[8, 8]
  %g = all-gather(%q, dim=0, axes=[x]) : bf16[32, 8]
  return %t, %n, %g
"""


def test_other_collectives_do_not_change() -> None:
    assert rewritten(UNCHANGED) == UNCHANGED


def test_the_sum_of_an_earlier_collective_is_not_rounded() -> None:
    assert "%u.wide = all-reduce(%t.wide" in rewritten("""\
) -> (bf16[8] of bf16[8@-]) {
  %s = sum(%p, dims=[0]) : bf16[8]
  %t = all-reduce(%s, axes=[x:(1)2], op=add) : bf16[8]
  %u = all-reduce(%t, axes=[x:(2)2], op=add) : bf16[8]
  return %u
""")


def test_only_gradients_are_widened_if_the_option_states_it() -> None:
    """A program that was parsed states no reasons, so that no operation is in a gradient."""
    lines = """\
) -> (bf16[8] of bf16[8@-]) {
  %s = sum(%p, dims=[0]) : bf16[8]
  %t = all-reduce(%s, axes=[x], op=add) : bf16[8]
  return %t
"""
    assert rewritten(lines, of="gradients") == lines
    assert "f64[8]" in rewritten(lines, dtype="f64")


def loss(w: Any, x: Any) -> Any:
    return snp.sum((x.astype(snp.bfloat16) @ w.astype(snp.bfloat16)).astype(np.float32))


@pytest.fixture(scope="module")
def arguments() -> tuple[Any, Any]:
    """Each device has the partial sum 256 + 1, which bf16 rounds to 256."""
    mesh = sd.make_mesh((4,), ("data",))
    x = np.tile(np.array([[256.0], [1.0]], np.float32), (4, 1))
    return np.ones((1, 1), np.float32), sd.device_put(x, NamedSharding(mesh, P("data")))


@pytest.mark.parametrize("isolated", [False, True], ids=["compiled", "isolated"])
def test_the_setting_adds_gradients_in_a_wider_float(
    arguments: tuple[Any, Any], isolated: bool
) -> None:
    step = sd.grad(loss)
    with sd.config(isolated=isolated):
        assert float(sd.jit(step)(*arguments)[0, 0]) == 1024
        for dtype, nbytes in ("float32", 4), ("float64", 8):
            with sd.config(grad_reduce_dtype=dtype):
                assert float(sd.jit(step)(*arguments)[0, 0]) == 1028
                collective = sd.jit(step).lower(*arguments).compile().collectives()[0]
                assert (collective.kind, collective.nbytes) == ("all-reduce", nbytes)


def test_the_setting_affects_the_gradient_alone(arguments: tuple[Any, Any]) -> None:
    def forward(x: Any) -> Any:
        return snp.sum(x.astype(snp.bfloat16), axis=0)

    lowered = sd.jit(forward).lower(arguments[1])
    with sd.config(grad_reduce_dtype=np.float32):
        assert sd.jit(forward).lower(arguments[1]).as_text("dce") == lowered.as_text("dce")


def accumulate_in_loop(w: Any, batches: Any) -> Any:
    def add_gradient(total: Any, x: Any) -> tuple[Any, None]:
        return total + sd.grad(loss)(w, x) * 0.5, None

    return lax.scan(add_gradient, snp.zeros_like(w), batches)[0]


def sum_scaled(w: Any, batches: Any) -> Any:
    return sd.grad(loss)(w, batches[0]) * 0.5 + sd.grad(loss)(w, batches[1]) * 0.5


def square_norm(w: Any, batches: Any) -> Any:
    x = batches.astype(snp.bfloat16)
    return w, snp.sum(x * x)


@pytest.mark.parametrize(
    ("step", "nbytes"), [(accumulate_in_loop, 4), (sum_scaled, 4), (square_norm, 2)]
)
def test_linear_operations_and_loops_of_gradients_are_gradients(step: Any, nbytes: int) -> None:
    mesh = sd.make_mesh((4,), ("data",))
    batches = sd.device_put(np.ones((2, 8, 1)), NamedSharding(mesh, P(None, "data")))
    with sd.config(grad_reduce_dtype="float32"):
        compiled = sd.jit(step).lower(snp.ones((1, 1), "bfloat16"), batches).compile()
    assert [each.nbytes for each in compiled.collectives()] == [nbytes]


def test_a_pipeline_without_partitioning_does_not_change() -> None:
    assert str(widen_gradient_sums(Pipeline.parse("propagate,cse"), "f32")) == "propagate,cse"
    assert (
        str(widen_gradient_sums(Pipeline.parse("partition,cse"), "f64"))
        == "partition,widen-reductions{dtype=f64,of=gradients},cse"
    )


def test_errors_name_the_dtypes() -> None:
    with pytest.raises(sd.ShardirError) as error, sd.config(grad_reduce_dtype="bfloat16"):
        pass
    assert str(error.value).startswith(
        "the setting grad_reduce_dtype is 'bfloat16'; it must be 'float32', 'float64' or None\n"
        "   --> tests/passes/collectives/test_widen_reductions.py:"
    )
