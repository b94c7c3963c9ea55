"""`resolve-conflicts` changes only open dimensions, of values that may be resharded, and only where
the program then sends less."""

import pytest

from shardir.passes import Pipeline, ResolveConflicts
from shardir.passes.pipeline import DEFAULT_PIPELINE
from shardir.text.parser import parse
from shardir.verify.verifier import verify

MESH = "mesh @m = [x=4, y=2]\n\n"
OPEN = "f32[64@?, 128@?]"
CLOSED = "f32[64@-, 128@-]"
BOTH = "f32[64@(x, y), 128@-]"
SUM = f"  %c = add(%a, %b) : {OPEN}\n"
UNCHANGED_SUM = f"  %c = add(%a, %b) : {CLOSED}\n"


def program(
    ops: str, results: str, returned: str = "%c", a: str = "64@x, 128@-", b: str = "64@y, 128@-"
) -> str:
    """Return a program with two matrices whose shardings conflict."""
    return (
        f"{MESH}func @f(\n  %a: f32[{a}],\n  %b: f32[{b}],\n) -> ({results}) {{\n"
        f"{ops}  return {returned}\n}}\n"
    )


def resolved(text: str) -> tuple[str, list[str]]:
    """Return the resolved program, and the reasons of its operations."""
    module = ResolveConflicts()(parse(text))
    verify(module)
    return str(module), [op.why for op in module.main.body.walk()]


@pytest.mark.parametrize(
    ("sharding", "b", "chosen"),
    [
        ("f32[64@?, 128@?]", "64@y, 128@-", BOTH),
        ("f32[64@-, 128@?]", "64@y, 128@-", "f32[64@-, 128@x]"),
        ("f32[64@y?, 128@?]", "64@-, 128@y", "f32[64@y, 128@-]"),
        ("f32[64@?, 128@?] replicated(x)", "64@y, 128@-", "f32[64@y, 128@-]"),
        ("f32[64@?, 128@?] unreduced(y)", "64@x, 128@-", f"{CLOSED} unreduced(y)"),
        ("f32[64@-, 128@-]", "64@y, 128@-", CLOSED),
    ],
    ids=["open", "closed dimension", "kept axes", "replicated", "unreduced", "closed"],
)
def test_stated_parts_of_a_sharding_are_kept(sharding: str, b: str, chosen: str) -> None:
    result = sharding.removesuffix(" replicated(x)")
    text, _ = resolved(program(f"  %c = add(%a, %b) : {sharding}\n", result, b=b))
    assert text == program(f"  %c = add(%a, %b) : {chosen}\n", chosen, b=b)


def test_axes_that_do_not_divide_are_not_chosen() -> None:
    rows = {"a": "12@x, 128@-", "b": "12@y, 128@-"}
    text, why = resolved(
        program("  %c = add(%a, %b) : f32[12@?, 128@?]\n", "f32[12@?, 128@?]", **rows)
    )
    chosen = "f32[12@x, 128@-]"
    assert text == program(f"  %c = add(%a, %b) : {chosen}\n", chosen, **rows)
    assert why == ["propagation leaves %c [-, -]; made [x, -] instead, its operands send less"]


@pytest.mark.parametrize(
    "use",
    [
        "  %d = sharding_constraint(%c) : f32[64@-, 128@-]\n",
        "  %d = optimization_barrier(%c) : f32[64@-, 128@-]\n",
        "  %d = manual_computation(%c, axes=[x], in_axes=[[[], []]], out_axes=[[[], []]]) : "
        "f32[64@-, 128@-] {\n    (%k: f32[64@-, 128@-]) =>\n"
        "    %l = neg(%k) : f32[64@-, 128@-]\n    yield %l\n  }\n",
    ],
    ids=["constraint", "barrier", "manual computation"],
)
def test_operands_of_operations_with_stated_shardings_keep_theirs(use: str) -> None:
    text, why = resolved(program(SUM + use, CLOSED, "%d"))
    assert text == program(UNCHANGED_SUM + use, CLOSED, "%d")
    assert not any(why)


@pytest.mark.parametrize("constrained", [CLOSED, "f32[64@y, 128@-]"])
def test_a_constrained_value_keeps_its_sharding_for_other_uses(constrained: str) -> None:
    """Another use would receive less, but `%c` has the sharding that propagation chose for the
    constraint."""
    rest = f"  %d = sharding_constraint(%c) : {constrained}\n  %e = neg(%c) : {OPEN}\n"
    text, _ = resolved(program(SUM + rest, f"{constrained}, {OPEN}", "%d, %e"))
    closed = rest.replace(OPEN, CLOSED)
    assert text == program(UNCHANGED_SUM + closed, f"{constrained}, {CLOSED}", "%d, %e")


@pytest.mark.parametrize("stated", [CLOSED, OPEN])
def test_results_of_a_barrier_keep_their_sharding(stated: str) -> None:
    barrier = f"  %d = optimization_barrier(%a) : {CLOSED}\n"
    text, _ = resolved(program(barrier.replace(CLOSED, stated) + SUM.replace("%a", "%d"), OPEN))
    chosen = "f32[64@y, 128@-]"
    assert text == program(barrier + f"  %c = add(%d, %b) : {chosen}\n", chosen)


def test_values_in_a_manual_computation_are_not_changed() -> None:
    """They keep what propagation chose along the axes that are not manual."""
    manual = """\
  %d = manual_computation(%a, %b, axes=[x], in_axes=[[[x], []], [[], []]], \
out_axes=[[[x], []]]) : f32[64@x, 128@-] {
    (%k: f32[16@-, 128@-], %l: f32[64@y, 128@-]) =>
    %m = neg(%l) : TYPE
    %n = slice(%m, starts=[0, 0], strides=[1, 1]) : f32[16@-, 128@-]
    %o = add(%k, %n) : f32[16@-, 128@-]
    yield %o
  }
"""
    result = "f32[64@x, 128@-]"
    text, _ = resolved(program(manual.replace("TYPE", OPEN), result, "%d"))
    assert text == program(manual.replace("TYPE", CLOSED), result, "%d")


def test_values_in_a_pipeline_are_changed() -> None:
    text, _ = resolved(PIPELINE.replace("TYPE", "f32[4@?, 64@?]"))
    assert text == PIPELINE.replace("TYPE", "f32[4@-, 64@(x, y)]")


PIPELINE = """\
mesh @m = [pipe=2, x=4, y=2]

func @f(
  %a: f32[16@-, 64@-],
) -> (f32[]) {
  %loss = pipeline(%a, microbatches=4, schedule="1f1b", axis="pipe", batched=[0]) : f32[] {
    (%a.1: f32[4@-, 64@-]) =>
    %b = sharding_constraint(%a.1) : f32[4@-, 64@x]
    %c = sharding_constraint(%a.1) : f32[4@-, 64@y]
    %d = add(%b, %c) : TYPE
    %e = sum(%d, dims=[0, 1]) : f32[]
    yield %e
  }
  return %loss
}
"""


def test_the_program_of_a_device_is_not_changed() -> None:
    module = Pipeline.parse(DEFAULT_PIPELINE)(parse(program(SUM, OPEN)))
    assert ResolveConflicts()(module) is module


def test_a_value_in_a_loop_that_yields_another_sharding_is_not_changed() -> None:
    loop = """\
  %d = scan(%a, carries=1, length=3) : f32[64@x, 128@-] {
    (%k: f32[64@x, 128@-]) =>
    %c = add(%k, %b) : TYPE
    yield %c
  }
"""
    result = "f32[64@x, 128@-]"
    text, _ = resolved(program(loop.replace("TYPE", OPEN), result, "%d"))
    assert text == program(loop.replace("TYPE", CLOSED), result, "%d")


def test_a_requested_result_is_not_gathered_from_a_new_sharding() -> None:
    """Two results with one sharding are gathered once."""
    for results, returned in ((CLOSED, "%c"), (f"{CLOSED}, {CLOSED}", "%c, %c")):
        text, why = resolved(program(SUM, results, returned))
        assert text == program(UNCHANGED_SUM, results, returned)
        assert why == [""]


def test_results_with_one_sharding_are_resharded_once() -> None:
    """The choice sends less although both results need other shards of the value."""
    results = "f32[64@y, 128@-], f32[64@y, 128@-]"
    text, _ = resolved(program(SUM, results, "%c, %c"))
    assert text == program(f"  %c = add(%a, %b) : {BOTH}\n", results, "%c, %c")


def test_a_value_is_changed_if_the_results_keep_their_shardings() -> None:
    result = "f32[64, 128]"
    assert resolved(program(SUM, result))[0] == program(f"  %c = add(%a, %b) : {BOTH}\n", result)


@pytest.mark.parametrize(
    ("made", "requested", "returned"),
    [
        (BOTH, OPEN, BOTH),  # The result takes the sharding of its value.
        (BOTH, "f32[64@-, 128@?]", CLOSED),  # A closed dimension does not.
        (BOTH, "f32[64@x?, 128@?]", BOTH),
        (BOTH, "f32[64@y?, 128@?]", "f32[64@y, 128@-]"),
        (CLOSED, "f32[64@x?, 128@?]", "f32[64@x, 128@-]"),  # A slice sends nothing.
        (BOTH, "f32[64, 128]", "f32[64, 128]"),
    ],
)
def test_open_results_take_the_sharding_of_their_value(
    made: str, requested: str, returned: str
) -> None:
    ops = f"  %c = add(%a, %b) : {made}\n"
    assert resolved(program(ops, requested))[0] == program(ops, returned)


@pytest.mark.parametrize("requested", [CLOSED, OPEN, f"{OPEN} unreduced[max](y)"])
def test_results_do_not_take_a_pending_reduction(requested: str) -> None:
    """A result that is requested without it is complete."""
    ops = "  %c = sharding_constraint(%a) : f32[64@x, 128@-] unreduced(y)\n"
    returned = requested.replace("?", "-")
    assert resolved(program(ops, requested))[0] == program(ops, returned)


def test_open_results_keep_a_pending_reduction() -> None:
    made = "f32[64@x, 128@-] unreduced(y)"
    ops = f"  %c = sharding_constraint(%a) : {made}\n"
    assert resolved(program(ops, f"{OPEN} unreduced(y)"))[0] == program(ops, made)


def test_open_results_do_not_take_uneven_shardings() -> None:
    ops = "  %c = slice(%a, starts=[0, 0], strides=[1, 1]) : f32[6@x, 128@-]\n"
    assert resolved(program(ops, "f32[6@?, 128@?]"))[0] == program(ops, "f32[6@-, 128@-]")


def test_the_reason_follows_the_one_that_an_operation_states() -> None:
    _, why = resolved(program(f'  %c = add(%a, %b) : {OPEN} why("sum of terms")\n', OPEN))
    assert why == [
        "sum of terms; propagation leaves %c [-, -]; made [(x, y), -] instead, its operands send "
        "less"
    ]


def test_operations_without_sharded_operands_are_not_changed() -> None:
    rest = f"  %k = constant(value=1.0) : {OPEN}\n  %d = neg(%k) : {OPEN}\n"
    text, why = resolved(program(SUM + rest, f"{OPEN}, {OPEN}", "%c, %d"))
    closed = rest.replace(OPEN, CLOSED)
    chosen = f"  %c = add(%a, %b) : {BOTH}\n"
    assert text == program(chosen + closed, f"{BOTH}, {CLOSED}", "%c, %d")
    assert why[1:] == ["", ""]
