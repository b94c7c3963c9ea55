"""`vectorize`: batched operations, unbatched operations, control flow, and errors."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from shardir import parse
from shardir.errors import VectorizeError
from shardir.interpret.interpreter import evaluate
from shardir.ir.mesh import Mesh
from shardir.ir.module import Function, Loc, Module
from shardir.passes.batching.vectorize import vectorize
from shardir.verify.verifier import verify
from tests.op_sample import Array, any_values
from tests.programs.strategies import modules


def function(text: str) -> Function:
    return parse(text).main


def print_verified(made: Function, *meshes: Mesh) -> str:
    module = Module(meshes, (made,))
    verify(module)
    assert str(parse(str(module))) == str(module)
    return str(module)


def check(plain: Function, batched: Sequence[bool], args: Sequence[Array]) -> Function:
    """Check the vectorized program against a loop over slices, and return it."""
    sizes = {x.shape[0] for x, flag in zip(args, batched, strict=True) if flag}
    (size,) = sizes
    many = vectorize(plain, batched, size)
    print_verified(many)
    made = evaluate(many, args)
    for i in range(size):
        pairs = zip(args, batched, strict=True)
        alone = evaluate(plain, [np.asarray(x[i]) if flag else x for x, flag in pairs])
        for got, expected in zip(made, alone, strict=True):
            mine = got[i] if got.ndim > expected.ndim else got
            np.testing.assert_allclose(mine, expected, rtol=1e-6, atol=1e-6)
    return many


LAYER = """\
func @layer(
  %x: f32[3],
  %w: f32[3, 4],
  %b: f32[4],
) -> (f32[4], f32[3, 4]) {
  %h = dot(%x, %w, dims="i,ih->h") : f32[4]
  %half = constant(value=0.5) : f32[3, 4]
  %v = mul(%w, %half) : f32[3, 4]
  %0 = add(%h, %b) : f32[4]
  %y = tanh(%0) : f32[4]
  return %y, %v
}
"""


def test_only_dependent_values_get_the_batch_dimension() -> None:
    made = vectorize(function(LAYER), [True, False, False], 5)
    assert (
        print_verified(made)
        == """\
func @layer.vmap(
  %x: f32[5, 3],
  %w: f32[3, 4],
  %b: f32[4],
) -> (f32[5, 4], f32[3, 4]) {
  %h = dot(%x, %w, dims="ai,ih->ah") : f32[5, 4]
  %half = constant(value=0.5) : f32[3, 4]
  %v = mul(%w, %half) : f32[3, 4]
  %1 = broadcast(%b, dims=[1]) : f32[5, 4]
  %0 = add(%h, %1) : f32[5, 4]
  %y = tanh(%0) : f32[5, 4]
  return %y, %v
}
"""
    )


def test_a_vectorized_program_may_be_vectorized_again() -> None:
    once = vectorize(function(LAYER), [True, False, False], 5)
    twice = vectorize(once, [False, True, False], 2)
    assert [value.type.shape for value in twice.body.returns] == [(2, 5, 4), (2, 3, 4)]
    rng = np.random.default_rng(0)
    check(once, [False, True, False], [
        rng.normal(size=shape).astype("f4") for shape in ((5, 3), (2, 3, 4), (4,))
    ])  # fmt: skip


def test_operations_keep_their_source_lines() -> None:
    plain = function(LAYER)
    loc = Loc("a.py", 7, 1)
    ops = tuple(replace(op, loc=loc, why="asked for") for op in plain.body.ops)
    made = vectorize(replace(plain, body=replace(plain.body, ops=ops)), [True] * 3, 5)
    assert {op.loc for op in made.body.ops} == {loc}
    unlike = vectorize(plain, [True, False, False], 5)
    assert [op.why for op in unlike.body.ops if op.name == "broadcast"] == [
        "broadcast along the batch dimension"
    ]


def test_shardings_get_an_open_dimension() -> None:
    text = """\
mesh @grid = [data=2, model=2]

func @f(
  %x: f32[4@model],
  %w: f32[4@-],
) -> (f32[4@model], f32[4@data]) {
  %y = sharding_constraint(%x) : f32[4@data]
  %v = sharding_constraint(%w) : f32[4@model]
  return %y, %v
}
"""
    module = parse(text)
    made = vectorize(module.main, [True, False], 6)
    assert (
        print_verified(made, *module.meshes)
        == """\
mesh @grid = [data=2, model=2]

func @f.vmap(
  %x: f32[6, 4@model],
  %w: f32[4@-],
) -> (f32[6, 4@model], f32[4@data]) {
  %y = sharding_constraint(%x) : f32[6, 4@data]
  %v = sharding_constraint(%w) : f32[4@model]
  return %y, %v
}
"""
    )


UNTIL = """\
func @until(
  %x: f32[],
  %step: f32[2],
  %limit: f32[],
) -> (f32[], i32[], f32[2]) {
  %zero = constant(value=0) : i32[]
  %end, %count, %kept = while(%x, %zero, %step) : f32[], i32[], f32[2] {
    (%a: f32[], %n: i32[], %s: f32[2]) =>
    %more = lt(%a, %limit) : bool[]
    yield %more
  } {
    (%b: f32[], %m: i32[], %t: f32[2]) =>
    %u = sum(%t, dims=[0]) : f32[]
    %c = add(%b, %u) : f32[]
    %one = constant(value=1) : i32[]
    %k = add(%m, %one) : i32[]
    yield %c, %k, %t
  }
  return %end, %count, %kept
}
"""


def arrays(*shapes: tuple[int, ...]) -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.uniform(0.5, 3, shape).astype("f4") for shape in shapes]


@pytest.mark.parametrize(
    ("batched", "shapes"),
    [
        ((True, False, False), ((5,), (2,), ())),
        ((False, True, False), ((), (5, 2), ())),
        ((False, False, True), ((), (2,), (5,))),
        ((True, True, True), ((5,), (5, 2), (5,))),
    ],
)
def test_examples_leave_a_loop_at_different_iterations(
    batched: Sequence[bool], shapes: Sequence[tuple[int, ...]]
) -> None:
    check(
        function(UNTIL), batched, [10 * x if i == 2 else x for i, x in enumerate(arrays(*shapes))]
    )


def test_loop_invariant_values_stay_unbatched() -> None:
    made = vectorize(function(UNTIL), [True, False, False], 5)
    assert [value.type.shape for value in made.body.returns] == [(5,), (5,), (2,)]


def test_values_that_a_loop_does_not_change_are_not_selected() -> None:
    made = vectorize(function(UNTIL), [True, True, True], 5)
    (loop,) = (op for op in made.body.ops if op.name == "while")
    assert [op.name for op in loop.blocks[1].ops].count("select") == 2


def test_a_carry_is_batched_if_its_initial_value_alone_is() -> None:
    text = """\
func @f(
  %x: f32[2],
) -> (f32[2]) {
  %y = scan(%x, carries=1, length=2, reverse=false) : f32[2] {
    (%c: f32[2]) =>
    %one = constant(value=1.0) : f32[2]
    yield %one
  }
  return %y
}
"""
    check(function(text), [True], arrays((3, 2)))


MANUAL = """\
mesh @m = [i=2]

func @f(
  %x: f32[4],
) -> (f32[4]) {
  %r = manual_computation(%x, axes=[i], in_axes=[[[]]], out_axes=[[[]]]) : f32[4] {
    (%p: f32[4]) =>
    %y = neg(%p) : f32[4]
    yield %y
  }
  return %r
}
"""
SHARDED = (
    MANUAL.replace("[[[]]]", "[[[i]]]")
    .replace("(%p: f32[4])", "(%p: f32[2])")
    .replace("%y = neg(%p) : f32[4]", "%y = neg(%p) : f32[2]")
)
REDUCED = MANUAL.replace("neg(%p)", "all-reduce(%p, axes=[i], op=add)")


@pytest.mark.parametrize(
    ("text", "size", "axis", "is_sharded"),
    [
        (MANUAL, 4, None, True),
        # Its axis has the name of the axis of the mesh, and no collective is along it.
        (MANUAL, 4, "i", True),
        (REDUCED, 4, "i", False),
        # The axis shards another dimension, or does not divide the batch.
        (SHARDED, 4, None, False),
        (MANUAL, 3, None, False),
    ],
)
def test_axes_of_a_manual_computation_that_shard_the_batch(
    text: str, size: int, axis: str | None, is_sharded: bool
) -> None:
    main = parse(text).main
    (made,) = vectorize(main, [True], size, axis=axis, front=lambda axes: axes).body.ops
    assert bool(made.attrs["in_axes"][0][0]) == is_sharded
    (made,) = vectorize(main, [True], size, axis=axis).body.ops
    assert made.attrs["in_axes"][0][0] == ()


def test_an_operation_with_a_block_and_without_a_rule() -> None:
    text = """\
func @f(
  %x: f32[8],
) -> (f32[8]) {
  %y = fused(%x) : f32[8] {
    (%p: f32[8]) =>
    %q = exp(%p) : f32[8]
    yield %q
  }
  return %y
}
"""
    with pytest.raises(VectorizeError) as caught:
        vectorize(function(text), [True], 2)
    assert str(caught.value) == (
        "%y = fused has no batching rule; vectorize the program before the pass that adds fused"
    )


def test_a_loop_with_an_unbatched_condition_keeps_it() -> None:
    text = UNTIL.replace("lt(%a, %limit) : bool[]", "lt(%n, %zero) : bool[]")
    made = vectorize(function(text), [True, False, False], 5)
    assert (
        print_verified(made)
        == """\
func @until.vmap(
  %x: f32[5],
  %step: f32[2],
  %limit: f32[],
) -> (f32[5], i32[], f32[2]) {
  %zero = constant(value=0) : i32[]
  %end, %count, %kept = while(%x, %zero, %step) : f32[5], i32[], f32[2] {
    (%a: f32[5], %n: i32[], %s: f32[2]) =>
    %more = lt(%n, %zero) : bool[]
    yield %more
  } {
    (%b: f32[5], %m: i32[], %t: f32[2]) =>
    %u = sum(%t, dims=[0]) : f32[]
    %0 = broadcast(%u, dims=[]) : f32[5]
    %c = add(%b, %0) : f32[5]
    %one = constant(value=1) : i32[]
    %k = add(%m, %one) : i32[]
    yield %c, %k, %t
  }
  return %end, %count, %kept
}
"""
    )


SUMS = """\
func @sums(
  %x: f32[2],
  %xs: f32[3, 2],
  %scale: f32[2],
) -> (f32[2], f32[2], f32[3, 2], f32[3]) {
  %a, %b, %ys, %zs = scan(%x, %scale, %xs, carries=2, length=3, reverse=true) : f32[2], f32[2], \
f32[3, 2], f32[3] {
    (%c: f32[2], %d: f32[2], %row: f32[2]) =>
    %e = add(%c, %d) : f32[2]
    %y = mul(%row, %scale) : f32[2]
    %f = add(%d, %y) : f32[2]
    %z = sum(%scale, dims=[0]) : f32[]
    yield %e, %f, %y, %z
  }
  return %a, %b, %ys, %zs
}
"""


@pytest.mark.parametrize("batched", list(product((True, False), repeat=3))[:-1])
def test_carries_that_become_batched(batched: Sequence[bool]) -> None:
    shapes = ((2,), (3, 2), (2,))
    args = arrays(*((4, *s) if flag else s for s, flag in zip(shapes, batched, strict=True)))
    made = check(function(SUMS), batched, args)
    has_dimension = [value.type.shape[0] == 4 for value in made.body.returns]
    _, xs, scale = batched
    assert has_dimension == [True, xs or scale, xs or scale, scale]


CHOICE = """\
func @choice(
  %i: INDEX[],
  %x: f32[2],
) -> (f32[2], f32[2]) {
  %y, %z = case(%i) : f32[2], f32[2] {
    %a = sin(%x) : f32[2]
    yield %a, %x
  } {
    %one = constant(value=1.0) : f32[2]
    yield %x, %one
  }
  return %y, %z
}
"""


@pytest.mark.parametrize("dtype", ["i32", "bool"])
@pytest.mark.parametrize("batched", [(True, True), (True, False), (False, True)])
def test_branches_and_selections(dtype: str, batched: Sequence[bool]) -> None:
    index = np.array([0, 1, 1, 0] if dtype == "bool" else [0, 1, 9, -3], dtype.replace("i32", "i4"))
    x = arrays((4, 2))[0]
    args = [a if flag else np.asarray(a[1]) for a, flag in zip((index, x), batched, strict=True)]
    check(function(CHOICE.replace("INDEX", dtype)), batched, args)


def test_an_empty_batch() -> None:
    for text, shapes in ((LAYER, ((0, 3), (3, 4), (4,))), (SUMS, ((0, 2), (3, 2), (2,)))):
        made = evaluate(vectorize(function(text), [True, False, False], 0), arrays(*shapes))
        assert made[0].shape[0] == 0


def test_unsupported_operations_are_errors() -> None:
    with pytest.raises(VectorizeError) as caught:
        vectorize(function(LAYER), [True], 2)
    assert str(caught.value) == ("@layer has 3 parameters, but batched has 1 entry")
    text = """\
mesh @grid = [data=2]

spmd func @f(
  %x: f32[4] of f32[8@data],
) -> (f32[4] of f32[8@data]) {
  %y = all-reduce(%x, axes=[data], op=add) : f32[4]
  return %y
}
"""
    with pytest.raises(VectorizeError) as caught:
        vectorize(function(text), [True], 2)
    assert str(caught.value) == "@f is a per-device program; vectorize before 'partition'"


@given(modules(), st.integers(0, 2**20))
def test_random_programs(module: Module, seed: int) -> None:
    plain = module.main
    rng = np.random.default_rng(seed)
    batched = [bool(rng.integers(0, 2)) for _ in plain.body.params]
    assume(any(batched))
    args = [
        any_values(rng, param.type.with_shape((3, *param.type.shape)) if flag else param.type)
        for param, flag in zip(plain.body.params, batched, strict=True)
    ]
    many = vectorize(plain, batched, 3)
    print_verified(many, *module.meshes)
    made = evaluate(many, args)
    for i in range(3):
        pairs = zip(args, batched, strict=True)
        alone = evaluate(plain, [np.asarray(x[i]) if flag else x for x, flag in pairs])
        for got, expected in zip(made, alone, strict=True):
            mine = got[i] if got.ndim > expected.ndim else got
            assert mine.dtype == expected.dtype
            close(mine, expected)


def close(made: Array, expected: Array) -> None:
    """Compare results, with a tolerance for sums in another order."""
    if made.dtype.kind in "biu":
        return
    wide = np.complex128 if made.dtype.kind == "c" else np.float64
    rounding = 0.05 if made.dtype.itemsize == 2 else 1e-3
    np.testing.assert_allclose(made.astype(wide), expected.astype(wide), rounding, rounding)
