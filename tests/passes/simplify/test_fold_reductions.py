"""`fold-reductions`: contractions and reductions absorb a following reduction."""

import pytest

from shardir import parse
from shardir.interpret.interpreter import run
from shardir.interpret.numeric_comparison import are_close, tolerance_of
from shardir.interpret.random_arguments import random_arguments
from shardir.passes import Pipeline
from shardir.verify.verifier import verify
from tests.programs.near_misses import disagreements

EXAMPLES = {
    "a sum over devices of contractions is one": (
        """\
  %h: f32[4, 16, 8],
  %d: f32[4, 16, 5],
) -> (f32[8, 5]) {
  %0 = dot(%h, %d, dims="abi,abo->aio") : f32[4, 8, 5]
  %1 = sum(%0, dims=[0]) : f32[8, 5]
  return %1
""",
        """\
  %1 = dot(%h, %d, dims="abi,abo->io") : f32[8, 5]
  return %1
""",
    ),
    "what one operand alone has is added up before": (
        """\
  %h: f32[4, 16, 8],
  %d: f32[8, 5],
) -> (f32[16, 5]) {
  %0 = dot(%h, %d, dims="abi,io->abo") : f32[4, 16, 5]
  %1 = sum(%0, dims=[0]) : f32[16, 5]
  return %1
""",
        """\
  %2 = sum(%h, dims=[0]) : f32[16, 8]
  %1 = dot(%2, %d, dims="bi,io->bo") : f32[16, 5]
  return %1
""",
    ),
    "but not if that would round": (
        """\
  %h: bf16[4, 16, 8],
  %d: bf16[8, 5],
) -> (bf16[16, 5]) {
  %0 = dot(%h, %d, dims="abi,io->abo") : bf16[4, 16, 5]
  %1 = sum(%0, dims=[0]) : bf16[16, 5]
  return %1
""",
        None,
    ),
    "a sum that waited behind a factor": (
        """\
  %h: f32[2, 16, 8],
  %d: f32[2, 8, 5],
  %w: f32[16, 5],
) -> (f32[5]) {
  %0 = dot(%h, %d, dims="abi,aio->abo") : f32[2, 16, 5]
  %1 = broadcast(%w, dims=[1, 2]) : f32[2, 16, 5]
  %2 = mul(%0, %1) : f32[2, 16, 5]
  %3 = sum(%2, dims=[1]) : f32[2, 5]
  %4 = sum(%3, dims=[0]) : f32[5]
  return %4
""",
        """\
  %5 = dot(%h, %d, dims="abi,aio->bo") : f32[16, 5]
  %6 = mul(%5, %w) : f32[16, 5]
  %4 = sum(%6, dims=[0]) : f32[5]
  return %4
""",
    ),
    "but not behind a quotient of integers, which is rounded": (
        """\
  %x: i32[3, 4, 5],
  %c: i32[4],
) -> (i32[4]) {
  %0 = sum(%x, dims=[0]) : i32[4, 5]
  %1 = broadcast(%c, dims=[0]) : i32[4, 5]
  %2 = div(%0, %1) : i32[4, 5]
  %3 = sum(%2, dims=[1]) : i32[4]
  return %3
""",
        None,
    ),
    "nor where it may be out of range without the factor": (
        """\
  %x: f16[3, 4, 5],
  %c: f16[4],
) -> (f16[4]) {
  %0 = sum(%x, dims=[0]) : f16[4, 5]
  %1 = broadcast(%c, dims=[0]) : f16[4, 5]
  %2 = mul(%0, %1) : f16[4, 5]
  %3 = sum(%2, dims=[1]) : f16[4]
  return %3
""",
        None,
    ),
    "a sum that waited behind another": (
        """\
  %h: f32[2, 16, 8],
  %d: f32[2, 8, 5],
  %w: f32[2, 5, 16],
) -> (f32[16, 5]) {
  %0 = dot(%h, %d, dims="abi,aio->abo") : f32[2, 16, 5]
  %1 = transpose(%w, perm=[0, 2, 1]) : f32[2, 16, 5]
  %2 = add(%0, %1) : f32[2, 16, 5]
  %3 = sum(%2, dims=[0]) : f32[16, 5]
  return %3
""",
        """\
  %1 = transpose(%w, perm=[0, 2, 1]) : f32[2, 16, 5]
  %4 = dot(%h, %d, dims="abi,aio->bo") : f32[16, 5]
  %5 = sum(%1, dims=[0]) : f32[16, 5]
  %3 = add(%4, %5) : f32[16, 5]
  return %3
""",
    ),
    "but not where few digits are left of a difference": (
        """\
  %h: bf16[2, 16, 8],
  %d: bf16[2, 8, 5],
  %w: bf16[2, 16, 5],
) -> (bf16[16, 5]) {
  %0 = dot(%h, %d, dims="abi,aio->abo") : bf16[2, 16, 5]
  %1 = sub(%0, %w) : bf16[2, 16, 5]
  %2 = sum(%1, dims=[0]) : bf16[16, 5]
  return %2
""",
        None,
    ),
    "what a scan stacks": (
        """\
  %h: f32[7, 4, 16, 8],
  %d: f32[4, 16, 5],
) -> (f32[7, 8, 5]) {
  %0 = scan(%h, carries=0, length=7) : f32[7, 4, 8, 5] {
    (%x: f32[4, 16, 8]) =>
    %1 = dot(%x, %d, dims="abi,abo->aio") : f32[4, 8, 5]
    yield %1
  }
  %2 = transpose(%0, perm=[1, 0, 2, 3]) : f32[4, 7, 8, 5]
  %3 = sum(%2, dims=[0]) : f32[7, 8, 5]
  return %3
""",
        """\
  %3 = scan(%h, carries=0, length=7) : f32[7, 8, 5] {
    (%x: f32[4, 16, 8]) =>
    %4 = dot(%x, %d, dims="abi,abo->io") : f32[8, 5]
    yield %4
  }
  return %3
""",
    ),
    "nor where the parts are used": (
        """\
  %h: f32[4, 16, 8],
  %d: f32[4, 16, 5],
) -> (f32[4, 8, 5], f32[8, 5]) {
  %0 = dot(%h, %d, dims="abi,abo->aio") : f32[4, 8, 5]
  %1 = sum(%0, dims=[0]) : f32[8, 5]
  return %0, %1
""",
        None,
    ),
    "nor where a view of the parts is used": (
        """\
  %h: f32[4, 16, 8],
  %d: f32[4, 16, 5],
) -> (f32[32, 5], f32[5]) {
  %0 = dot(%h, %d, dims="abi,abo->aio") : f32[4, 8, 5]
  %1 = reshape(%0) : f32[32, 5]
  %2 = sum(%1, dims=[0]) : f32[5]
  return %1, %2
""",
        None,
    ),
    "nor sums of nothing": (
        """\
  %x: f32[4, 0, 3],
) -> (f32[3], f32[0]) {
  %0 = sum(%x, dims=[0]) : f32[0, 3]
  %1 = sum(%0, dims=[0]) : f32[3]
  %2 = max(%x, dims=[0]) : f32[0, 3]
  %3 = reshape(%2) : f32[3, 0]
  %4 = max(%3, dims=[0]) : f32[0]
  return %1, %4
""",
        None,
    ),
    "nor sums along no dimension": (
        """\
  %h: f32[4, 16, 8],
  %d: f32[4, 16, 5],
) -> (f32[4, 8, 5]) {
  %0 = dot(%h, %d, dims="abi,abo->aio") : f32[4, 8, 5]
  %1 = sum(%0, dims=[]) : f32[4, 8, 5]
  return %1
""",
        None,
    ),
    "nor the rounds of a scan, what it carries, or part of a dimension": (
        """\
  %h: f32[7, 4],
  %c: f32[4],
) -> (f32[4], f32[], f32[7, 2]) {
  %0, %1 = scan(%c, %h, carries=1, length=7) : f32[4], f32[7, 4] {
    (%a: f32[4], %b: f32[4]) =>
    %2 = add(%a, %b) : f32[4]
    yield %2, %2
  }
  %3 = sum(%1, dims=[0]) : f32[4]
  %4 = sum(%0, dims=[0]) : f32[]
  %5 = scan(%h, carries=0, length=7) : f32[7, 4] {
    (%e: f32[4]) =>
    %6 = exp(%e) : f32[4]
    yield %6
  }
  %7 = reshape(%5) : f32[7, 2, 2]
  %8 = sum(%7, dims=[1]) : f32[7, 2]
  return %3, %4, %8
""",
        None,
    ),
    "nor parts of what a scan carries": (
        """\
  %h: f32[7, 4, 2],
  %c: f32[4, 2],
) -> (f32[4]) {
  %0 = scan(%c, %h, carries=1, length=7) : f32[4, 2] {
    (%a: f32[4, 2], %b: f32[4, 2]) =>
    %1 = mul(%a, %b) : f32[4, 2]
    yield %1
  }
  %2 = sum(%0, dims=[1]) : f32[4]
  return %2
""",
        None,
    ),
    "nor the largest of what a scan stacks": (
        """\
  %h: f32[7, 4],
) -> (f32[7]) {
  %0 = scan(%h, carries=0, length=7) : f32[7, 4] {
    (%x: f32[4]) =>
    %1 = exp(%x) : f32[4]
    yield %1
  }
  %2 = max(%0, dims=[1]) : f32[7]
  return %2
""",
        None,
    ),
    "nor what another block stacks": (
        """\
  %h: f32[7, 4],
  %p: bool[],
) -> (f32[7]) {
  %0 = scan(%h, carries=0, length=7) : f32[7, 4] {
    (%x: f32[4]) =>
    %1 = exp(%x) : f32[4]
    yield %1
  }
  %2 = case(%p) : f32[7] {
    %3 = sum(%0, dims=[1]) : f32[7]
    yield %3
  } {
    %4 = slice(%h, starts=[0, 0], strides=[1, 4]) : f32[7, 1]
    %5 = reshape(%4) : f32[7]
    yield %5
  }
  return %2
""",
        None,
    ),
    "nor features of a group, nor features of one group": (
        """\
  %x: f32[4, 6, 6, 3],
  %g: f32[2, 6, 6, 10],
  %w: f32[4, 6, 6, 10],
) -> (f32[3, 3, 3, 2], f32[3, 3, 5], f32[3, 3, 3, 5]) {
  %0 = convolution(%x, %g, strides=[1, 1], padding=[[1, 1], [1, 1]], lhs_dilation=[1, 1], \
rhs_dilation=[1, 1], dims="f01b,i01o->01bf", groups=2) : f32[3, 3, 3, 10]
  %1 = reshape(%0) : f32[3, 3, 3, 2, 5]
  %2 = sum(%1, dims=[4]) : f32[3, 3, 3, 2]
  %3 = convolution(%x, %g, strides=[1, 1], padding=[[1, 1], [1, 1]], lhs_dilation=[1, 1], \
rhs_dilation=[1, 1], dims="f01b,i01o->01bf", groups=2) : f32[3, 3, 3, 10]
  %4 = reshape(%3) : f32[3, 3, 3, 2, 5]
  %5 = sum(%4, dims=[0, 3]) : f32[3, 3, 5]
  %6 = convolution(%x, %w, strides=[1, 1], padding=[[1, 1], [1, 1]], lhs_dilation=[1, 1], \
rhs_dilation=[1, 1], dims="f01b,i01o->01bf", groups=1) : f32[3, 3, 3, 10]
  %7 = reshape(%6) : f32[3, 3, 3, 2, 5]
  %8 = sum(%7, dims=[3]) : f32[3, 3, 3, 5]
  return %2, %5, %8
""",
        None,
    ),
    "nor what is written to tables in place of a sum, or within one table": (
        """\
  %t: f32[4, 8, 3],
  %i: i32[4, 16, 1],
  %u: f32[4, 16, 3],
) -> (f32[8, 3], f32[4, 3]) {
  %0 = scatter(%t, %i, %u, op="max", update_window_dims=[2], inserted_window_dims=[1], \
scatter_dims=[1], operand_batching_dims=[0], indices_batching_dims=[0]) : f32[4, 8, 3]
  %1 = sum(%0, dims=[0]) : f32[8, 3]
  %2 = scatter(%t, %i, %u, op="add", update_window_dims=[2], inserted_window_dims=[1], \
scatter_dims=[1], operand_batching_dims=[0], indices_batching_dims=[0]) : f32[4, 8, 3]
  %3 = sum(%2, dims=[1]) : f32[4, 3]
  return %1, %3
""",
        None,
    ),
    "nor products of other values": (
        """\
  %h: f32[2, 16, 8],
  %d: f32[2, 8, 5],
  %w: f32[2, 16, 5],
  %v: f32[2],
  %s: f32[16, 5],
) -> (f32[16, 5], f32[16, 5], f32[16, 5], f32[16, 5], f32[16, 5], f32[16, 5]) {
  %0 = dot(%h, %d, dims="abi,aio->abo") : f32[2, 16, 5]
  %1 = mul(%0, %w) : f32[2, 16, 5]
  %2 = sum(%1, dims=[0]) : f32[16, 5]
  %3 = dot(%h, %d, dims="abi,aio->abo") : f32[2, 16, 5]
  %4 = broadcast(%v, dims=[0]) : f32[2, 16, 5]
  %5 = mul(%3, %4) : f32[2, 16, 5]
  %6 = sum(%5, dims=[0]) : f32[16, 5]
  %7 = broadcast(%s, dims=[1, 2]) : f32[2, 16, 5]
  %8 = mul(%w, %7) : f32[2, 16, 5]
  %9 = sum(%8, dims=[0]) : f32[16, 5]
  %10 = dot(%h, %d, dims="abi,aio->abo") : f32[2, 16, 5]
  %11 = add(%10, %w) : f32[2, 16, 5]
  %12 = broadcast(%s, dims=[1, 2]) : f32[2, 16, 5]
  %13 = mul(%11, %12) : f32[2, 16, 5]
  %14 = sum(%13, dims=[0]) : f32[16, 5]
  %15 = exp(%w) : f32[2, 16, 5]
  %16 = add(%15, %w) : f32[2, 16, 5]
  %17 = sum(%16, dims=[0]) : f32[16, 5]
  %18 = broadcast(%s, dims=[1, 2]) : f32[2, 16, 5]
  %19 = mul(%18, %18) : f32[2, 16, 5]
  %20 = sum(%19, dims=[0]) : f32[16, 5]
  return %2, %6, %9, %14, %17, %20
""",
        None,
    ),
    "nor products of sums that would round": (
        """\
  %h: bf16[4, 16, 8],
  %d: bf16[8, 5],
  %s: f32[16, 5],
) -> (f32[16, 5]) {
  %0 = dot(%h, %d, dims="abi,io->abo") : f32[4, 16, 5]
  %1 = broadcast(%s, dims=[1, 2]) : f32[4, 16, 5]
  %2 = mul(%0, %1) : f32[4, 16, 5]
  %3 = sum(%2, dims=[0]) : f32[16, 5]
  return %3
""",
        None,
    ),
    "sums of sums": (
        """\
  %x: f32[4, 2, 8, 3],
) -> (f32[3]) {
  %0 = sum(%x, dims=[2]) : f32[4, 2, 3]
  %1 = sum(%0, dims=[0]) : f32[2, 3]
  %2 = sum(%1, dims=[0]) : f32[3]
  return %2
""",
        """\
  %2 = sum(%x, dims=[0, 1, 2]) : f32[3]
  return %2
""",
    ),
    "through what is moved in between": (
        """\
  %x: f32[4, 2, 8, 3],
) -> (f32[3, 2]) {
  %0 = max(%x, dims=[2]) : f32[4, 2, 3]
  %1 = transpose(%0, perm=[2, 0, 1]) : f32[3, 4, 2]
  %2 = reshape(%1) : f32[3, 2, 2, 2]
  %3 = max(%2, dims=[1, 2]) : f32[3, 2]
  return %3
""",
        """\
  %4 = max(%x, dims=[0, 2]) : f32[2, 3]
  %3 = transpose(%4, perm=[1, 0]) : f32[3, 2]
  return %3
""",
    ),
    "the largest of sums is no sum": (
        """\
  %x: f32[4, 2],
) -> (f32[]) {
  %0 = sum(%x, dims=[1]) : f32[4]
  %1 = max(%0, dims=[0]) : f32[]
  return %1
""",
        None,
    ),
    "what each device scatters to a table of its own": (
        """\
  %t: f32[4, 8, 3],
  %i: i32[4, 16, 1],
  %u: f32[4, 16, 3],
) -> (f32[8, 3]) {
  %0 = scatter(%t, %i, %u, op=add, update_window_dims=[2], inserted_window_dims=[1], \
scatter_dims=[1], operand_batching_dims=[0], indices_batching_dims=[0]) : f32[4, 8, 3]
  %1 = sum(%0, dims=[0]) : f32[8, 3]
  return %1
""",
        """\
  %2 = sum(%t, dims=[0]) : f32[8, 3]
  %1 = scatter(%2, %i, %u, op=add, update_window_dims=[2], inserted_window_dims=[0], \
scatter_dims=[0], operand_batching_dims=[], indices_batching_dims=[]) : f32[8, 3]
  return %1
""",
    ),
    "gradients of a filter of one feature in each group": (
        """\
  %x: f32[2, 6, 6, 3],
  %g: f32[1, 6, 6, 10],
) -> (f32[3, 3, 3, 5]) {
  %0 = convolution(%x, %g, strides=[1, 1], padding=[[1, 1], [1, 1]], lhs_dilation=[1, 1], \
rhs_dilation=[1, 1], dims="f01b,i01o->01bf", groups=2) : f32[3, 3, 3, 10]
  %1 = reshape(%0) : f32[3, 3, 3, 2, 5]
  %2 = sum(%1, dims=[3]) : f32[3, 3, 3, 5]
  return %2
""",
        """\
  %3 = reshape(%g) : f32[6, 6, 2, 5]
  %4 = transpose(%3, perm=[2, 0, 1, 3]) : f32[2, 6, 6, 5]
  %2 = convolution(%x, %4, strides=[1, 1], padding=[[1, 1], [1, 1]], lhs_dilation=[1, 1], \
rhs_dilation=[1, 1], dims="f01b,i01o->01bf", groups=1) : f32[3, 3, 3, 5]
  return %2
""",
    ),
    "gradients of a filter": (
        """\
  %x: f32[4, 6, 6, 3],
  %g: f32[2, 6, 6, 10],
) -> (f32[3, 3, 3, 5]) {
  %0 = convolution(%x, %g, strides=[1, 1], padding=[[1, 1], [1, 1]], lhs_dilation=[1, 1], \
rhs_dilation=[1, 1], dims="f01b,i01o->01bf", groups=2) : f32[3, 3, 3, 10]
  %1 = reshape(%0) : f32[3, 3, 3, 2, 5]
  %2 = transpose(%1, perm=[3, 0, 1, 2, 4]) : f32[2, 3, 3, 3, 5]
  %3 = sum(%2, dims=[0]) : f32[3, 3, 3, 5]
  return %3
""",
        """\
  %4 = reshape(%g) : f32[2, 6, 6, 2, 5]
  %5 = transpose(%4, perm=[3, 0, 1, 2, 4]) : f32[2, 2, 6, 6, 5]
  %6 = reshape(%5) : f32[4, 6, 6, 5]
  %3 = convolution(%x, %6, strides=[1, 1], padding=[[1, 1], [1, 1]], lhs_dilation=[1, 1], \
rhs_dilation=[1, 1], dims="f01b,i01o->01bf", groups=1) : f32[3, 3, 3, 5]
  return %3
""",
    ),
}


@pytest.mark.parametrize(("before", "after"), EXAMPLES.values(), ids=EXAMPLES)
def test_before_and_after(before: str, after: str | None) -> None:
    module = parse(f"func @main(\n{before}}}\n")
    made = Pipeline.parse("fold-reductions,dce")(module, lambda step, old, new, _: verify(new))
    head, _, body = before.partition("{\n")
    assert str(made) == f"func @main(\n{head}{{\n{body if after is None else after}}}\n"
    arguments = random_arguments(module, whole=True)
    assert are_close(run(module, arguments), run(made, arguments), tolerance_of(module))


@pytest.mark.parametrize(("before", "_"), EXAMPLES.values(), ids=EXAMPLES)
def test_programs_that_resemble_examples_keep_their_results(before: str, _: str | None) -> None:
    found = disagreements(parse(f"func @main(\n{before}}}\n"), "fold-reductions,dce")
    assert not found, found[0]
