"""The record of propagation: steps that changed shardings, and axes that did not propagate."""

import pytest

from shardir.passes import Propagate
from shardir.passes.propagation.record import PropagationHistory, PropagationStep, Refusal
from shardir.text.parser import parse
from tests.passes.propagation.propagation_result import MESH, operation


def history(text: str, **options: object) -> PropagationHistory:
    _, record = Propagate(**options).run_recorded(parse(MESH + text))  # type: ignore[arg-type]
    return record.histories["f"]


def refusals(text: str, **options: object) -> set[str]:
    """Return the axes that do not propagate through the first operation in the end, without those
    that the refusing tensor has."""
    found = history(text, **options)
    name = found.function.body.ops[0].result.name
    (visit,) = (visit for visit in found.final_visits if visit.op and visit.op.result.name == name)
    return {line(visit, each) for each in visit.refusals if not has_axis(visit, each)}


def has_axis(visit: PropagationStep, refusal: Refusal) -> bool:
    """Return whether the tensor has the refused axis along the factor."""
    sharding, mapping = visit.before[refusal.tensor], visit.rule.tensors[refusal.tensor]
    dims = zip(sharding.dims if sharding else (), mapping, strict=False)
    return any(refusal.axis in dim.axes and refusal.factor in factors for dim, factors in dims)


def line(visit: PropagationStep, refusal: Refusal) -> str:
    """Return a refusal as text; the first factor is i."""
    axis, factor = refusal.axis, chr(ord("i") + refusal.factor)
    is_full = axis.pre == 1 and axis.size == SIZES[axis.name]
    tensor = visit.tensors[refusal.tensor].name
    return f"{axis.name if is_full else axis} along {factor} of %{tensor}: {refusal.reason.name}"


SIZES = {"x": 2, "y": 2, "z": 4}
VECTORS = "([i], [i]) -> ([i]) {i=16}"
MATRIX = "([i], [j]) -> ([i, j]) {i=16, j=16}"
MERGED = "([i, j]) -> ([ij]) {i=6, j=4}"


@pytest.mark.parametrize("level", ["basic", "user-priority"])
@pytest.mark.parametrize(
    ("rule", "operands", "result", "expected"),
    [
        # An axis that all tensors have is not refused, and neither is a part that all take.
        (VECTORS, ["f32[16@x]", "f32[16@x]"], "f32[16@x]", []),
        (VECTORS, ["f32[16@x]", "f32[16]"], "f32[16]", []),
        (VECTORS, ["f32[16@x]", "f32[16@x]"], "f32[16@-]", ["x along i of %r: CLOSED"]),
        (
            VECTORS,
            ["f32[16@(x, y)]", "f32[16@(x, y)]"],
            "f32[16@-]",
            ["x along i of %r: CLOSED", "y along i of %r: BEHIND"],
        ),
        (
            VECTORS,
            ["f32[16@(x, y)]", "f32[16@(x, y)]"],
            "f32[16@x]",
            ["y along i of %r: CLOSED"],
        ),
        (
            VECTORS,
            ["f32[16@(z, y)]", "f32[16@(z, y)]"],
            "f32[16@z:(1)2]",
            ["z along i of %r: CLOSED", "y along i of %r: BEHIND"],
        ),
        (
            VECTORS,
            ["f32[16@x]", "f32[16@x]"],
            "f32[16] replicated(x)",
            ["x along i of %r: REPLICATED"],
        ),
        (
            VECTORS,
            ["f32[16@x]", "f32[16@y]"],
            "f32[16@-]",
            ["x along i of %p1: DISAGREE", "y along i of %p0: DISAGREE"],
        ),
        (
            VECTORS,
            ["f32[16@(x, y)]", "f32[16@(x, z)]"],
            "f32[16@-]",
            ["x along i of %r: CLOSED", "y along i of %p1: DISAGREE", "z along i of %p0: DISAGREE"],
        ),
        (MERGED, ["f32[6@x, 4]"], "f32[24]", []),
        (MERGED, ["f32[6@z, 4]"], "f32[24]", ["z along i of %r: UNEVEN"]),
        (MATRIX, ["f32[16@x]", "f32[16@y]"], "f32[16, 16]", []),
        (MATRIX, ["f32[16@z:(1)2]", "f32[16@z:(2)2]"], "f32[16, 16]", []),
    ],
)
def test_the_last_visit_of_an_operation_has_the_axes_that_it_refuses(
    rule: str, operands: list[str], result: str, expected: list[str], level: str
) -> None:
    assert refusals(operation(rule, operands, result), level=level) == set(expected)


@pytest.mark.parametrize("level", ["basic", "user-priority"])
@pytest.mark.parametrize(
    ("rule", "operands", "result"),
    [
        (VECTORS, ["f32[16@x]", "f32[16]"], "f32[16]"),
        (MATRIX, ["f32[16@x]", "f32[16@y]"], "f32[16, 16]"),
        ("([i, j]) -> ([ij]) {i=8, j=4}", ["f32[8@x, 4]"], "f32[32]"),
    ],
)
def test_a_step_refuses_no_axes_that_tensors_gain(
    rule: str, operands: list[str], result: str, level: str
) -> None:
    step = next(step for step in history(operation(rule, operands, result), level=level).steps)
    assert step.gains
    assert step.refusals == ()


@pytest.mark.parametrize("level", ["basic", "user-priority"])
def test_the_part_of_an_axis_that_shards_another_dimension_is_refused(level: str) -> None:
    text = operation(MATRIX, ["f32[16@z]", "f32[16]"], "f32[16, 16@z:(2)2]")
    assert "z along i of %r: USED" in refusals(text, level=level)


@pytest.mark.parametrize(("level", "others"), [("basic", {"p0"}), ("user-priority", set[str]())])
def test_an_axis_that_shards_another_dimension_is_refused(level: str, others: set[str]) -> None:
    """Basic propagation then passes the axis of the result to no operand."""
    text = operation(MATRIX, ["f32[16@x]", "f32[16]"], "f32[16, 16@x]")
    expected = {f"x along j of %{name}: USED" for name in others}
    assert refusals(text, level=level) == {"x along i of %r: USED"} | expected


@pytest.mark.parametrize("level", ["basic", "user-priority"])
def test_conservative_propagation_refuses_parts_of_axes(level: str) -> None:
    text = operation(MATRIX, ["f32[16@z:(1)2]", "f32[16]"], "f32[16, 16]")
    visit = history(text, level=level, conservative=True).final_visits[0]
    assert {line(visit, each).partition(" of ")[0] for each in visit.refusals} == {"z:(1)2 along i"}
    assert {each.reason.name for each in visit.refusals} == {"SPLIT"}
    closed = operation(MATRIX, ["f32[16@z]", "f32[16]"], "f32[16@-, 16]")
    assert refusals(closed, level=level, conservative=True) == {"z along i of %r: CLOSED"}


SEVERAL_ROUNDS = """\
func @f(
  %a: f32[8, 8],
  %w: f32[8, 8@x p1],
) -> (f32[8, 8]) {
  sharding_group(%a, group=0)
  %s = sin(%w) : f32[8, 8]
  sharding_group(%s, group=0)
  %b = optimization_barrier(%a) : f32[8, 8]
  %c = exp(%b) : f32[8, 8]
  %d = sharding_constraint(%b) : f32[8, 8@y?]
  %e = dot(%d, %w, dims="ik,kj->ij") : f32[8, 8]
  return %e
}
"""


def test_steps_change_shardings() -> None:
    found = history(SEVERAL_ROUNDS)
    assert len(found.steps) > 3
    assert all(step.before != step.after for step in found.steps)


def test_each_operation_has_one_final_visit() -> None:
    """The constraint moves behind the barrier before propagation."""
    found = history("""\
func @f(
  %a: f32[8],
) -> (f32[8], f32[8]) {
  %b = optimization_barrier(%a) : f32[8]
  %c = exp(%b) : f32[8]
  %d = sharding_constraint(%b) : f32[8@x]
  return %c, %d
}
""")
    visited = [visit.op.results[0].name for visit in found.final_visits if visit.op]
    assert sorted(visited) == ["b", "c", "d"]


@pytest.mark.parametrize(
    ("priority", "expected"),
    [
        (" p1", {"x along i of %r: PRIORITY", "y along i of %r: BEHIND"}),
        ("", {"y along i of %r: CLOSED"}),
    ],
)
def test_a_dimension_of_a_later_priority_is_closed_meanwhile(
    priority: str, expected: set[str]
) -> None:
    """In the first steps, at priority 0, `%r` has no axes yet."""
    text = operation(VECTORS, ["f32[16@(x, y)]", "f32[16]"], f"f32[16@x{priority}]")
    step = next(step for step in history(text).steps if step.op is not None)
    assert {line(step, each) for each in step.refusals if each.tensor == 2} == expected


def test_axes_of_other_dimensions_are_refused_for_their_own_reason() -> None:
    """At priority 0 only the rows of `%r` wait for theirs, and at the end none do."""
    rule = "([i], [j], [j]) -> ([i, j]) {i=16, j=16}"
    text = operation(rule, ["f32[16]", "f32[16@y]", "f32[16]"], "f32[16@x p1, 16@-]")
    early = [step for step in history(text).steps if step.priority == 0 and step.op is not None]
    found = {line(step, each) for step in early for each in step.refusals}
    assert found == {"y along j of %r: CLOSED"}
    closed = operation(VECTORS, ["f32[16@(x, y)]", "f32[16]"], "f32[16@x p1]")
    assert refusals(closed) == {"y along i of %r: CLOSED"}


def test_an_uneven_dimension_that_no_annotation_states_is_closed_for_its_other_factor() -> None:
    text = """\
func @f(
  %b: f32[12@x?],
) -> (f32[3, 4]) {
  %c = neg(%b) : f32[12]
  %a = exp(%c) : f32[12]
  %d = reshape(%a) : f32[3, 4@y?]
  return %d
}
"""
    visits = [visit for visit in history(text, level="basic").final_visits if visit.op]
    (visit,) = (visit for visit in visits if visit.op and visit.op.name == "reshape")
    assert {line(visit, each).partition(" along")[2] for each in visit.refusals} == {
        " i of %a: SPILL",
        " j of %a: CLOSED",
    }


GROUP = """\
func @f(
  %a: FIRST,
  %b: SECOND,
  %c: f32[8, 4@y],
) -> (f32[8, 4], f32[8, 4]) {
  sharding_group(%a, group=0)
  sharding_group(%b, group=0)
  %d = add(%a, %c) : f32[8, 4]
  return %d, %b
}
"""


@pytest.mark.parametrize(
    ("first", "second", "gained"),
    [
        ("f32[8@x?, 4]", "f32[8@x?, 4]", [(1, "y")]),
        ("f32[8, 4]", "f32[8, 4]", [(1, "y")]),
    ],
)
def test_a_member_of_a_group_gains_the_axes_that_it_lacks(
    first: str, second: str, gained: list[tuple[int, str]]
) -> None:
    """Its sharding is set by the first step, and each member has one final visit."""
    found = history(GROUP.replace("FIRST", first).replace("SECOND", second))
    ties = [step for step in found.steps if step.op and step.op.name == "sharding_group"]
    gains = [(gain.factor, axis.name) for gain in ties[0].gains for axis in gain.axes]
    assert gains == gained
    visits = [visit for visit in found.final_visits if visit.op]
    groups = [len(each.tensors) for each in visits if each.op and each.op.name == "sharding_group"]
    assert groups == [2, 2]


def test_a_group_sets_the_axes_of_an_operand_of_a_manual_computation() -> None:
    """`%a` gets y from inside; the other member gets both of its axes."""
    found = history("""\
func @f(
  %a: f32[8@x?],
  %b: f32[8],
) -> (f32[8], f32[8]) {
  %r = manual_computation(%a, axes=[x], in_axes=[[[x]]], out_axes=[[[x]]]) : f32[8] {
    (%p: f32[4@y?]) =>
    %q = neg(%p) : f32[4]
    yield %q
  }
  sharding_group(%a, group=0)
  sharding_group(%b, group=0)
  return %r, %b
}
""")
    ties = [step for step in found.steps if step.op and step.op.name == "sharding_group"]
    after = {
        str(axis.name)
        for step in ties
        for tensor in step.after
        if tensor
        for axis in tensor.dims[0].axes
    }
    assert after == {"x", "y"}
    assert all(len(tensor.dims[0].axes) == 2 for step in ties for tensor in step.after if tensor)


def test_values_that_share_a_cell_have_the_first_stated_sharding() -> None:
    """The result of the loop owns the edge of its parameter."""
    found = history("""\
func @f(
  %a: f32[8],
) -> (f32[8]) {
  %r = while(%a) : f32[8@x?] {
    (%t: f32[8]) =>
    %s = sum(%t, dims=[0]) : f32[]
    %n = constant(value=9.0) : f32[]
    %c = lt(%s, %n) : bool[]
    yield %c
  } {
    (%p: f32[8@y?]) =>
    %q = neg(%p) : f32[8]
    yield %q
  }
  return %r
}
""")
    (stated,) = (each for each in found.stated if each.value and each.value.name in ("r", "p"))
    first = found.final[stated.cell]
    assert first is not None
    assert stated.sharding.dims[0].axes == first.dims[0].axes


def test_an_operation_that_waits_keeps_its_place() -> None:
    """The first one changes the operand of the last one, which is visited after the second one."""
    found = history("""\
func @f(
  %a: f32[8@x?],
  %e: f32[8@y?],
) -> (f32[8], f32[8]) {
  %b = neg(%a) : f32[8]
  %d = sin(%e) : f32[8]
  %c = exp(%b) : f32[8]
  return %c, %d
}
""")
    assert [step.op.name for step in found.steps if step.op] == ["neg", "sin", "exp"]


@pytest.mark.parametrize(
    ("direction", "operand", "result", "expected"),
    [
        ("forward", "8@x", "8@-", "x along i of %r: CLOSED"),
        ("forward", "8@-", "8@x", "x along i of %a: DIRECTION"),
        ("backward", "8@x", "8@-", "x along i of %r: DIRECTION"),
        ("backward", "8@-", "8@x", "x along i of %a: CLOSED"),
    ],
)
def test_a_direction_stops_only_axes_that_move_in_the_other_one(
    direction: str, operand: str, result: str, expected: str
) -> None:
    text = f"""\
func @f(
  %a: f32[{operand}],
) -> (f32[8]) {{
  %r = propagation_barrier(%a, direction={direction}) : f32[{result}]
  return %r
}}
"""
    assert refusals(text) == {expected}


@pytest.mark.parametrize("rows", ["", "@y"])
def test_axes_that_would_make_strided_shards_are_no_step(rows: str) -> None:
    """The result has the sharding that it had before, or none."""
    result = "f32[32@y?]" if rows else "f32[32]"
    found = history(operation("([i, j]) -> ([ij]) {i=4, j=8}", [f"f32[4{rows}, 8@x]"], result))
    assert [step.op.name for step in found.steps if step.op] == []


@pytest.mark.parametrize(
    ("rule", "operands", "result", "expected"),
    [
        # Columns of the result have their axes already, which only the second operand gains.
        (
            MATRIX,
            ["f32[16@x]", "f32[16]"],
            "f32[16, 16@y?]",
            {"x of %r from %p0", "y of %p1 from %r"},
        ),
        # The second operand has all axes that the result takes, and one more.
        (VECTORS, ["f32[16@-]", "f32[16@(x, y)]"], "f32[16] replicated(y)", {"x of %r from %p1"}),
    ],
)
def test_a_step_states_the_axes_that_tensors_gain_and_their_source(
    rule: str, operands: list[str], result: str, expected: set[str]
) -> None:
    step = next(step for step in history(operation(rule, operands, result)).steps if step.op)
    names = [value.name for value in step.tensors]
    assert expected == {
        f"{', '.join(axis.name for axis in gain.axes)} of %{names[gain.tensor]} "
        f"from %{names[gain.source]}"
        for gain in step.gains
    }
