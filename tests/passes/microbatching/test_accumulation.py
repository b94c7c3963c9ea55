"""`accumulate-microbatches` on programs of each device: equal results, what each loop contains, and
operations that no loop can contain."""

import numpy as np
import pytest

from shardir.errors import PipelineError
from shardir.interpret.interpreter import run
from shardir.ir.module import Module
from shardir.passes import Pipeline
from shardir.text.parser import parse
from shardir.verify.verifier import verify


def program(
    body: str,
    result: str = "f32[4, 8] of f32[4@-, 8@-]",
    name: str = "%g",
    batch: str = "(data, microbatch)",
    dtype: str = "f32",
    count: int = 2,
) -> Module:
    """Return a program with a batch `%x`, of which each device has `count` microbatches, and a
    weight `%w`."""
    lines = "\n".join(f"  {line}" for line in body.strip().splitlines())
    text = (
        f"mesh @m = [data=2, microbatch={count}]\n\n"
        f"spmd func @step(\n  %x: f32[4, 4] of f32[{8 * count}@{batch}, 4@-],\n"
        f"  %w: f32[4, 8] of f32[4@-, 8@-],\n) -> ({result}) {{\n{lines}\n  return {name}\n}}\n"
    )
    return parse(text.replace("f32", dtype))


def accumulate(module: Module) -> Module:
    """Return the program with loops, whose results must be equal."""
    made = Pipeline.parse("accumulate-microbatches")(module)
    verify(made)
    rng = np.random.default_rng(0)
    args = [
        rng.integers(-3, 4, outer.type.shape).astype(outer.type.numpy)
        for outer in module.main.spmd.params  # type: ignore[union-attr]
    ]
    for got, expected in zip(run(made, args), run(module, args), strict=True):
        np.testing.assert_array_equal(got, expected)
    return made


def body_and_loops(module: Module) -> tuple[list[str], list[list[str]]]:
    """Return the names of the operations outside of loops, and those of each loop."""
    main = accumulate(module).main.body.ops
    loops = [[inner.name for inner in op.blocks[0].ops] for op in main if op.name == "scan"]
    return [op.name for op in main], loops


ROWS = "f32[4, 8] of f32[16@(data, microbatch), 8@-]"
PRODUCT = 'dot(%x, %w, dims="bi,ih->bh") : f32[4, 8]'
SUM = "all-reduce(%p, axes=[data, microbatch], op=add) : f32[4, 8]"
POSITION = """
%n = convert(%i) : f32[]
%b = broadcast(%n, dims=[]) : f32[4, 8]
%y = dot(%x, %w, dims="bi,ih->bh") : f32[4, 8]
%g = mul(%y, %b) : f32[4, 8]"""


@pytest.mark.parametrize(
    "index",
    [
        "%i = axis-index(axes=[microbatch]) : i32[]",
        "%i = axis-index(axes=[data, microbatch]) : i32[]",
        "%i = axis-index(axes=[data]) : i32[]",
        """%z = constant(value=1) : i32[]
%i = case(%z) : i32[] {
  yield %z
} {
  %j = axis-index(axes=[data, microbatch]) : i32[]
  %k = add(%j, %z) : i32[]
  yield %k
}""",
    ],
    ids=["microbatch", "both axes", "the other axis", "in a branch"],
)
def test_the_position_of_a_microbatch_is_the_number_of_its_iteration(index: str) -> None:
    """A device holds the rows of its own microbatches, so that the results are the same rows."""
    outside, loops = body_and_loops(program(index + POSITION, ROWS))
    assert len(loops) == 1
    # The loop takes the number of the iteration only if an operation needs it.
    assert ("iota" in outside) == ("microbatch" in index)


@pytest.mark.parametrize(("axes", "rows"), [("microbatch", 2), ("data, microbatch", 1)])
def test_a_slice_for_each_microbatch_is_taken_in_the_loop(axes: str, rows: int) -> None:
    text = f"""
%s = all-slice(%w, dim=0, axes=[{axes}]) : f32[{rows}, 8]
%t = sum(%s, dims=[0]) : f32[8]
%b = broadcast(%t, dims=[1]) : f32[4, 8]
%y = {PRODUCT}
%g = mul(%y, %b) : f32[4, 8]"""
    outside, (loop,) = body_and_loops(program(text, ROWS))
    assert "dynamic_slice" in loop
    # The slice along the other axis remains one for each device.
    assert ("all-slice" in [*outside, *loop]) == ("data" in axes)


@pytest.mark.parametrize(
    ("called", "inside"),
    [
        ("%i = axis-index(axes=[microbatch]) : i32[]" + POSITION, "mul"),
        (
            f"%h = {PRODUCT}\n%s = all-gather(%h, dim=0, axes=[microbatch]) : f32[8, 8]\n"
            "%g = slice(%s, starts=[0, 0], strides=[1, 1]) : f32[4, 8]",
            "dot",
        ),
    ],
    ids=["position", "collective"],
)
def test_operations_of_called_functions_belong_to_loops(called: str, inside: str) -> None:
    body = called.replace("%x", "%a").replace("%w", "%v")
    text = f"""
%r = call(%x, %w, callee="f") : f32[4, 8] {{
  (%a: f32[4, 4], %v: f32[4, 8]) =>
  {body}
  yield %g
}}"""
    outside, (loop,) = body_and_loops(program(text, ROWS, "%r"))
    assert inside in loop
    assert "call" not in [*outside, *loop]


REFUSED = [
    (
        "%s = all-slice(%w, dim=0, axes=[microbatch:(1)2]) : f32[2, 8]\n"
        "%t = sum(%s, dims=[0]) : f32[8]\n%b = broadcast(%t, dims=[1]) : f32[4, 8]\n"
        f"%y = {PRODUCT}\n%g = mul(%y, %b) : f32[4, 8]",
        "all-slice of %s",
    ),
    ("%i = axis-index(axes=[microbatch, data]) : i32[]" + POSITION, "axis-index of %i"),
    (
        f"%y = {PRODUCT}\n%g = collective-permute(%y, source=[microbatch], target=[microbatch]) "
        ": f32[4, 8]",
        "collective-permute of %g",
    ),
    ("%g = all-reduce(%w, axes=[microbatch], op=add) : f32[4, 8]", "all-reduce of %g"),
    (
        f"""%y = {PRODUCT}
%g = scan(%y, carries=1, length=2) : f32[4, 8] {{
  (%c: f32[4, 8]) =>
  %d = all-reduce(%c, axes=[microbatch], op=add) : f32[4, 8]
  yield %d
}}""",
        "all-reduce of %d",
    ),
]


@pytest.mark.parametrize(("body", "operation"), REFUSED)
def test_operations_that_no_loop_can_contain_are_refused(body: str, operation: str) -> None:
    with pytest.raises(PipelineError) as raised:
        accumulate(program(body, ROWS.replace("16", "32"), count=4))
    assert str(raised.value) == (
        f"accumulate-microbatches cannot run {operation} along the axis 'microbatch' in a loop; "
        "write the loop over microbatches with lax.scan"
    )


def test_rows_that_the_axis_does_not_divide_last_are_refused() -> None:
    with pytest.raises(PipelineError) as raised:
        accumulate(program(f"%g = {PRODUCT}", ROWS, batch="(microbatch, data)"))
    assert str(raised.value) == (
        "the axis 'microbatch' of @step is not the last one of the dimension that it shards; write "
        "the loop over microbatches with lax.scan"
    )


@pytest.mark.parametrize(
    ("dtype", "reduction", "carried"),
    [
        ("bf16", "add", "f32"),
        ("bf16", "mul", "f32"),
        ("bf16", "max", "bf16"),
        ("f32", "add", "f32"),
        ("i32", "add", "i32"),
    ],
)
def test_only_sums_and_products_of_narrow_floats_are_carried_in_f32(
    dtype: str, reduction: str, carried: str
) -> None:
    body = f"""
%p = max(%x, dims=[0]) : f32[4]
%g = all-reduce(%p, axes=[data, microbatch], op={reduction}) : f32[4]"""
    module = program(body, "f32[4] of f32[4@-]", dtype=dtype)
    (loop,) = (op for op in accumulate(module).main.body.ops if op.name == "scan")
    assert [value.type.dtype for value in loop.results] == [carried]


@pytest.mark.parametrize(
    ("body", "outside", "inside"),
    [
        # Only the loop needs the negated weight.
        (
            f"%v = neg(%w) : f32[4, 8]\n%h = {PRODUCT.replace('%w', '%v')}\nLOSS",
            [],
            ["neg"],
        ),
        # The result needs it, too.
        (
            f"%v = neg(%w) : f32[4, 8]\n%h = {PRODUCT.replace('%w', '%v')}\n"
            "LOSS\n%g = add(%s, %v) : f32[4, 8]",
            ["neg"],
            [],
        ),
        # Products are not repeated.
        (
            '%u = dot(%w, %w, dims="ij,kj->ik") : f32[4, 4]\n'
            '%v = dot(%u, %w, dims="ij,jk->ik") : f32[4, 8]\n'
            f"%h = {PRODUCT.replace('%w', '%v')}\nLOSS",
            ["dot", "dot"],
            [],
        ),
    ],
    ids=["used in the loop", "used behind the loop", "product"],
)
def test_operations_that_only_a_loop_needs_run_inside_of_it(
    body: str, outside: list[str], inside: list[str]
) -> None:
    name = "%s" if "%g" not in body else "%g"
    loss = (
        '%p = dot(%x, %h, dims="bi,bh->ih") : f32[4, 8]\n'
        "%s = all-reduce(%p, axes=[data, microbatch], op=add) : f32[4, 8]"
    )
    found, loops = body_and_loops(program(body.replace("LOSS", loss), name=name))
    assert [each for each in found if each in ("neg", "dot")] == outside
    (loop,) = loops
    assert [each for each in loop if each == "neg"] == inside
    assert loop.count("dot") == 2


STACKED_SUMS = """
%r = scan(%x, carries=0, length=4) : f32[4, 4] {{
  (%row: f32[4]) =>
  %n = neg(%row) : f32[4]
  %q = {made} : f32[4]
  yield %q
}}
%s = sum(%r, dims=[0]) : f32[4]
%g = all-reduce(%s, axes=[data, microbatch], op=max) : f32[4]"""


@pytest.mark.parametrize(
    ("made", "inner", "outside"),
    [
        ("all-reduce(%n, axes=[data, microbatch], op=add)", ["neg"], ["all-reduce"]),
        ("all-reduce(%n, axes=[data], op=add)", ["neg", "all-reduce"], []),
        ("neg(%n)", ["neg", "neg"], []),
    ],
    ids=["along the axis", "along the other axis", "no sum"],
)
def test_only_sums_along_the_axis_that_a_loop_stacks_follow_the_loop(
    made: str, inner: list[str], outside: list[str]
) -> None:
    """The loop over rows stays inside of the loop over microbatches."""
    text = STACKED_SUMS.format(made=made)
    if outside:
        text = text.replace("axes=[data, microbatch], op=max", "axes=[data], op=max")
    made_module = accumulate(program(text, "f32[4] of f32[4@-]"))
    body = made_module.main.body.ops
    (loop,) = (op for op in body if op.name == "scan")
    (rows,) = (op for op in loop.blocks[0].ops if op.name == "scan")
    assert [op.name for op in rows.blocks[0].ops] == inner
    last = [op.name for op in body if op.name == "all-reduce"]
    assert last == [*outside, "all-reduce"]


WHOLE_BATCH = "f32[16, 4] of f32[16@-, 4@-]"


@pytest.mark.parametrize(
    ("body", "result", "loop_count"),
    [
        (
            "%g = all-gather(%x, dim=0, axes=[data, microbatch]) : f32[16, 4]",
            WHOLE_BATCH,
            0,
        ),
        (
            "%g = all-reduce(%x, axes=[data, microbatch], op=add) : f32[4, 4]",
            "f32[4, 4] of f32[4@-, 4@-]",
            1,
        ),
        (
            """
%n = neg(%x) : f32[4, 4]
%a = all-gather(%n, dim=0, axes=[data, microbatch]) : f32[16, 4]
%s = sum(%a, dims=[0]) : f32[4]
%b = broadcast(%s, dims=[1]) : f32[4, 4]
%y = mul(%x, %b) : f32[4, 4]
%g = all-gather(%y, dim=0, axes=[data, microbatch]) : f32[16, 4]""",
            WHOLE_BATCH,
            2,
        ),
    ],
    ids=["gather of an argument", "sum of an argument", "two gathers"],
)
def test_each_value_of_the_whole_batch_ends_a_loop(body: str, result: str, loop_count: int) -> None:
    """The rows of an argument need no loop to be gathered."""
    _, loops = body_and_loops(program(body, result))
    assert len(loops) == loop_count


def test_a_result_that_does_not_vary_is_that_of_the_first_microbatch() -> None:
    """Another result of its operation varies."""
    body = """
%p, %q = scan(%x, %w, carries=2, length=3) : f32[4, 4], f32[4, 8] {
  (%a: f32[4, 4], %b: f32[4, 8]) =>
  %c = neg(%a) : f32[4, 4]
  %d = neg(%b) : f32[4, 8]
  yield %c, %d
}"""
    result = "f32[4, 4] of f32[16@(data, microbatch), 4@-], f32[4, 8] of f32[4@-, 8@-]"
    _, loops = body_and_loops(program(body, result, "%p, %q"))
    assert loops == [["scan"]]


def test_slices_for_each_microbatch_that_a_loop_stacks_stay_in_it() -> None:
    body = """
%r = scan(%x, carries=0, length=4) : f32[4, 2] {
  (%row: f32[4]) =>
  %q = all-slice(%row, dim=0, axes=[microbatch]) : f32[2]
  yield %q
}
%s = sum(%r, dims=[0]) : f32[2]
%g = all-reduce(%s, axes=[data, microbatch], op=add) : f32[2]"""
    _, (loop,) = body_and_loops(program(body, "f32[2] of f32[2@-]"))
    assert "dynamic_slice" not in loop


def test_an_operation_that_two_loops_need_runs_before_them() -> None:
    body = f"""
%v = neg(%w) : f32[4, 8]
%h = {PRODUCT.replace("%w", "%v")}
%p = dot(%x, %h, dims="bi,bh->ih") : f32[4, 8]
%s = all-reduce(%p, axes=[data, microbatch], op=add) : f32[4, 8]
%k = {PRODUCT.replace("%w", "%s")}
%l = dot(%k, %v, dims="bi,hi->bh") : f32[4, 4]
%q = sum(%l, dims=[0]) : f32[4]
%g = all-reduce(%q, axes=[data, microbatch], op=add) : f32[4]"""
    outside, loops = body_and_loops(program(body, "f32[4] of f32[4@-]"))
    assert [loop.count("dot") for loop in loops] == [2, 2]
    assert outside.count("neg") == 1
    assert not any("neg" in loop for loop in loops)


def test_an_operation_with_a_block_is_not_repeated() -> None:
    body = f"""
%v = scan(%w, carries=1, length=3) : f32[4, 8] {{
  (%a: f32[4, 8]) =>
  %n = neg(%a) : f32[4, 8]
  yield %n
}}
%g = {PRODUCT.replace("%w", "%v")}"""
    outside, loops = body_and_loops(program(body, ROWS))
    # The first loop is that of the program, the second one that over the microbatches.
    assert outside.count("scan") == 2
    assert loops == [["neg"], ["dot"]]


def test_a_sum_along_another_axis_takes_values_of_an_earlier_loop() -> None:
    body = """
%v = neg(%x) : f32[4, 4]
%s = sum(%v, dims=[0]) : f32[4]
%t = all-reduce(%s, axes=[data, microbatch], op=add) : f32[4]
%m = all-reduce(%v, axes=[data], op=add) : f32[4, 4]
%b = broadcast(%t, dims=[1]) : f32[4, 4]
%y = mul(%m, %b) : f32[4, 4]
%q = sum(%y, dims=[0]) : f32[4]
%g = all-reduce(%q, axes=[microbatch], op=add) : f32[4]"""
    _, loops = body_and_loops(program(body, "f32[4] of f32[4@-]"))
    assert ["all-reduce" in loop for loop in loops] == [False, True]
