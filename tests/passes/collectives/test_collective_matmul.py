"""`collective-matmul`: rings of collective permutes replace collectives around contractions."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from shardir.cost.communication import list_collectives, sum_collectives
from shardir.interpret.interpreter import run
from shardir.interpret.random_arguments import random_arguments
from shardir.ir.module import Module
from shardir.passes import CollectiveMatmul, Overlap, Pipeline
from shardir.text.parser import parse
from shardir.verify.verifier import verify

PREPARE = "reshard,partition,cse,dce"

GATHER = """\
mesh @m = [x=4, y=2]

func @f(%x: f32[64@x, 32], %w: f32[32, 16]) -> (f32[64@-, 16@-]) {
  %g = reshard(%x) : f32[64@-, 32@-]
  %y = dot(%g, %w, dims="bi,io->bo") : f32[64@-, 16@-]
  return %y
}
"""

SCATTER = """\
mesh @m = [x=4, y=2]

func @f(%x: f32[64, 32@x], %w: f32[32@x, 16]) -> (f32[64@x, 16@-]) {
  %y = dot(%x, %w, dims="bi,io->bo") : f32[64@x, 16@-]
  return %y
}
"""


def partitioned(text: str) -> Module:
    return Pipeline.parse(PREPARE)(parse(text))


def rings(module: Module) -> Module:
    changed = CollectiveMatmul(minimum=0)(module)
    verify(changed)
    return changed


def test_a_gather_before_a_contraction_becomes_a_ring() -> None:
    """The expected text omits types."""
    lines = str(rings(partitioned(GATHER))).partition(") {\n")[2].splitlines()
    assert [line.partition(" : ")[0] for line in lines] == [
        "  %y.index = axis-index(axes=[x])",
        "  %0 = constant(value=0)",
        "  %8, %9, %10 = scan(%x, %0, %y.index, carries=3, length=3, reverse=false)",
        "    (%x.1: f32[16, 32], %1: f32[64, 16], %y.index.1: i32[]) =>",
        "    %x.1.next = collective-permute(%x.1, axes=[x], "
        "pairs=[[1, 0], [2, 1], [3, 2], [0, 3]])",
        "    %2 = constant(value=16)",
        "    %3 = mul(%y.index.1, %2)",
        '    %y.partial = dot(%x.1, %w, dims="bi,io->bo")',
        "    %4 = constant(value=0)",
        "    %y.accumulator = dynamic_update_slice(%1, %y.partial, %3, %4)",
        "    %5 = constant(value=1)",
        "    %6 = add(%y.index.1, %5)",
        "    %7 = constant(value=4)",
        "    %y.index.1.next = rem(%6, %7)",
        "    yield %x.1.next, %y.accumulator, %y.index.1.next",
        "  }",
        "  %11 = constant(value=16)",
        "  %12 = mul(%10, %11)",
        '  %y.partial.1 = dot(%8, %w, dims="bi,io->bo")',
        "  %13 = constant(value=0)",
        "  %y = dynamic_update_slice(%9, %y.partial.1, %12, %13)",
        "  return %y",
        "}",
    ]


@pytest.mark.parametrize("text", [GATHER, SCATTER])
def test_a_ring_sends_equal_bytes_in_n_minus_1_steps(text: str) -> None:
    before = partitioned(text)
    (whole,), (step,) = list_collectives(before), list_collectives(rings(before))
    assert (step.kind, step.executions) == ("collective-permute", whole.group_size - 1)
    assert sum_collectives([step]).sent == whole.sent


def test_with_overlap_permutes_overlap_with_contractions() -> None:
    changed = Overlap()(rings(partitioned(SCATTER)))
    (loop,) = (op for op in changed.main.body.ops if op.name == "scan")
    names = [op.name for op in loop.blocks[0].ops]
    assert names.index("collective-permute-start") < names.index("dot") < names.index("done")


def test_small_tensors_are_not_changed() -> None:
    module = partitioned(GATHER)
    assert str(CollectiveMatmul()(module)) == str(module)
    assert CollectiveMatmul(minimum=64 * 32 * 4)(module) is not None
    assert "scan" in str(CollectiveMatmul(minimum=64 * 32 * 4)(module))
    assert "scan" not in str(CollectiveMatmul(minimum=64 * 32 * 4 + 1)(module))
    module = partitioned(SCATTER)
    assert "scan" in str(CollectiveMatmul(minimum=64 * 16 * 4)(module))
    assert "scan" not in str(CollectiveMatmul(minimum=64 * 16 * 4 + 1)(module))


def test_a_gathered_tensor_with_other_uses_stays_gathered() -> None:
    text = GATHER.replace("-> (f32[64@-, 16@-])", "-> (f32[64@-, 16@-], f32[64@-, 32@-])")
    module = partitioned(text.replace("return %y", "return %y, %g"))
    assert str(rings(module)) == str(module)


def test_a_gathered_contracted_dimension_stays_gathered() -> None:
    """Devices would add in different orders, so that replicated results would differ."""
    text = """\
mesh @m = [x=4]

func @f(%x: f32[64, 32@x], %w: f32[32, 16]) -> (f32[64@-, 16@-]) {
  %g = reshard(%x) : f32[64@-, 32@-]
  %y = dot(%g, %w, dims="bi,io->bo") : f32[64@-, 16@-]
  return %y
}
"""
    module = partitioned(text)
    assert str(rings(module)) == str(module)


FORMS = ["bi,io->bo", "ib,io->ob", "cbi,cio->cbo", "bi,bio->bo", "b,i->bi"]


@given(st.data())
def test_results_are_equal(data: st.DataObject) -> None:
    """The test covers any contraction, with any dimension gathered or scattered along one or two
    axes.
    """
    form = data.draw(st.sampled_from(FORMS))
    inputs, output = form.split("->")
    left, right = inputs.split(",")
    sizes = {letter: 8 * n for letter, n in zip("cbio", (1, 2, 1, 3), strict=True)}
    axes = data.draw(st.sampled_from(["x", "y", "(x, y)", "(y, x)"]))

    def type(word: str, letter: str) -> str:
        dims = (f"{sizes[c]}@{axes if c == letter else '-'}" for c in word)
        return f"f32[{', '.join(dims)}]"

    if data.draw(st.booleans()):
        letter = data.draw(st.sampled_from(left))
        lines = [
            f"func @f(%x: {type(left, letter)}, %w: {type(right, '')}) -> ({type(output, '')}) {{",
            f"  %g = reshard(%x) : {type(left, '')}",
            f'  %y = dot(%g, %w, dims="{form}") : {type(output, "")}',
        ]
    else:
        summed = [c for c in left if c not in output] or [""]
        letter = data.draw(st.sampled_from(output))
        lines = [
            f"func @f(%x: {type(left, summed[0])}, %w: {type(right, summed[0])}) -> "
            f"({type(output, letter)}) {{",
            f'  %y = dot(%x, %w, dims="{form}") : {type(output, letter)}',
        ]
    text = "\n".join(["mesh @m = [x=4, y=2]", "", *lines, "  return %y", "}"])
    before = partitioned(text)
    after = rings(before)
    assert str(parse(str(after))) == str(after)
    args = random_arguments(before, whole=True)
    np.testing.assert_array_equal(run(after, args)[0], run(before, args)[0])


UNCHANGED = [
    # The gathered tensor is both operands.
    """\
mesh @m = [x=4]

spmd func @f(
  %x: f32[2, 8] of f32[8@x, 8@-],
) -> (f32[8, 8] of f32[8@-, 8@-]) {
  %g = all-gather(%x, dim=0, axes=[x]) : f32[8, 8]
  %y = dot(%g, %g, dims="bi,ci->bc") : f32[8, 8]
  return %y
}
""",
    # The operands are parameters, and results of other operations.
    """\
mesh @m = [x=4]

spmd func @f(
  %x: f32[8, 8] of f32[8@-, 8@-],
) -> (f32[8, 8] of f32[8@-, 8@-]) {
  %e = exp(%x) : f32[8, 8]
  %y = dot(%e, %x, dims="bi,ic->bc") : f32[8, 8]
  return %y
}
""",
    # The gathered tensor is the operand of another operation.
    """\
mesh @m = [x=4]

spmd func @f(
  %x: f32[2, 8] of f32[8@x, 8@-],
) -> (f32[8, 8] of f32[8@-, 8@-]) {
  %g = all-gather(%x, dim=0, axes=[x]) : f32[8, 8]
  %y = exp(%g) : f32[8, 8]
  return %y
}
""",
    # The result of another operation is scattered.
    """\
mesh @m = [x=4]

spmd func @f(
  %x: f32[8, 8] of f32[8@-, 32@x],
) -> (f32[2, 8] of f32[8@x, 8@-]) {
  %e = exp(%x) : f32[8, 8]
  %y = reduce-scatter(%e, dim=0, axes=[x], op=add) : f32[2, 8]
  return %y
}
""",
    # What is scattered is a parameter, another operation, used elsewhere, or no sum.
    *(
        f"""\
mesh @m = [x=4]

spmd func @f(
  %x: f32[8, 8] of f32[8@-, 32@x],
) -> (f32[2, 8] of f32[8@x, 8@-], f32[8, 8] of f32[8@-, 32@x]) {{
  %e = exp(%x) : f32[8, 8]
  %d = dot(%e, %x, dims="bi,ic->bc") : f32[8, 8]
  %y = reduce-scatter({value}, dim=0, axes=[x], op={reduction}) : f32[2, 8]
  return %y, {other}
}}
"""
        for value, reduction, other in (
            ("%x", "add", "%d"),
            ("%e", "add", "%d"),
            ("%d", "add", "%d"),
            ("%d", "max", "%x"),
        )
    ),
]


@pytest.mark.parametrize("text", UNCHANGED)
def test_other_operations_stay(text: str) -> None:
    assert str(rings(parse(text))) == text


def test_a_mesh_axis_of_one_device_makes_no_ring() -> None:
    text = (
        UNCHANGED[0].replace("%g, %g", "%g, %x").replace("x=4", "x=1").replace("[2, 8]", "[8, 8]")
    )
    assert str(rings(parse(text))) == text
    text = UNCHANGED[6].replace("x=4", "x=1").replace("[2, 8]", "[8, 8]").replace("32@x", "8@x")
    assert str(rings(parse(text.replace("return %y, %d", "return %y, %x")))).count("scan") == 0


def test_a_contraction_is_part_of_one_ring() -> None:
    module = rings(
        parse("""\
mesh @m = [x=4]

spmd func @f(
  %x: f32[2, 8] of f32[8@x, 8@-],
  %w: f32[8, 4] of f32[8@-, 4@-],
) -> (f32[2, 4] of f32[8@x, 4@-]) {
  %g = all-gather(%x, dim=0, axes=[x]) : f32[8, 8]
  %d = dot(%g, %w, dims="bi,io->bo") : f32[8, 4]
  %y = reduce-scatter(%d, dim=0, axes=[x], op=add) : f32[2, 4]
  return %y
}
""")
    )
    names = [op.name for op in module.main.body.ops]
    assert (names.count("scan"), names.count("reduce-scatter")) == (1, 1)
