"""Which reshards are conflicts, and what decides them."""

import pytest

import shardir as sd
from shardir.passes.explain import conflicts
from shardir.passes.explain.reports import Conflict, Verdict
from shardir.text.parser import parse
from tests.passes.explain.programs import program

MESH = "mesh @m = [a=4, b=2]"
ONE = "mesh @one = [] devices=[0]"
WITHOUT_RESOLUTION = "propagate,reshard,partition"
SHARDY = "propagate,reshard{layouts=shardy},partition"
PRODUCT = '%v = dot(%x, %y, dims="ij,jk->ik") : f32[8, 4]'


def rows_of(
    params: str, result: str, *lines: str, mesh: str = MESH, pipeline: str | None = None
) -> tuple[Conflict, ...]:
    return conflicts(parse(program(params, result, *lines, mesh=mesh)), pipeline=pipeline).rows


def decision_of(row: Conflict) -> tuple[str, str, str, str, Verdict, str]:
    """Return the tensors and axes of both requests, and the reason."""
    kept, given_up = row.kept, row.given_up
    return kept.value, kept.axes, given_up.value, given_up.axes, row.verdict, row.detail


@pytest.mark.parametrize(
    ("params", "decision"),
    [
        (
            "%x: f32[8, 8@b], %y: f32[8@a, 4@b]",
            ("%y", "a", "%x", "b", Verdict.FEWER,
             "each device receives 160 B in 2 collectives, and would receive 128 B in 4 with 'j' "
             "sharded over b"),
        ),
        (
            "%x: f32[8, 8@a], %y: f32[8@b, 4@a]",
            ("%y", "b", "%x", "a", Verdict.LESS_WORK,
             "each device receives 160 B, and would receive 136 B with 'j' sharded over a, but "
             "compute more"),
        ),
    ],
)  # fmt: skip
def test_costs_decide(params: str, decision: tuple[object, ...]) -> None:
    rows = rows_of(params, "f32[8, 4]", PRODUCT, "return %v", pipeline=WITHOUT_RESOLUTION)
    assert decision in list(map(decision_of, rows))


STACKED = "%v = concatenate(%x, %x, dim=0) : f32[16, 8]"
LARGEST = "%v, %i = top_k(%x) : f32[3, 2], i32[3, 2]"


@pytest.mark.parametrize(
    ("params", "line", "result", "decision"),
    [
        (  # Propagation refused another axis of the factor.
            "%x: f32[8@(b, a)?, 8]", STACKED, "f32[16, 8@a]",
            ("%x", "b, a", "%v", "b", Verdict.CHEAPER,
             "each device receives 48 B, and would receive 192 B with dimension 0 of %x sharded "
             "over b"),
        ),
        (
            "%x: f32[8@a, 8@-]", STACKED, "f32[16, 8@a]",
            ("%x", "a", "%v", "a", Verdict.EQUAL,
             "each device receives 96 B, and would receive as much with dimension 1 of %x sharded "
             "over a"),
        ),
        (  # The factor is sharded over the part of the axes that divides it.
            "%x: f32[8, 4]", "%v = min(%x, dims=[0]) : f32[4]", "f32[4@(a, b)?]",
            ("%x", "a", "%v", "a, b", Verdict.CHEAPER,
             "each device receives 12 B, and would receive 52 B with dimension 1 of %x sharded "
             "over a, b"),
        ),
        (
            "%x: f32[3, 4@a]", LARGEST, "f32[3@a, 2]",
            ("%x", "a", "%v", "a", Verdict.CANNOT, "3 positions in 4 shards"),
        ),
        (  # A dimension that a slice reduces is no dimension of a reduction to `partition`.
            "%x: f32[2@b]", "%v = dynamic_slice(%x, %s) : f32[1]", "f32[1]",
            ("%x", "-", "%x", "b", Verdict.CANNOT, "factors of kind reduction"),
        ),
    ],
)  # fmt: skip
def test_the_decision_of_an_operation(
    params: str, line: str, result: str, decision: tuple[object, ...]
) -> None:
    zero = "%s = constant(value=0) : i32[]"
    rows = rows_of(params, result, zero, line, "return %v", pipeline=WITHOUT_RESOLUTION)
    assert decision in list(map(decision_of, rows))


def test_an_operation_that_cannot_run_with_the_given_up_axes() -> None:
    rows = rows_of(
        "%x: f32[16@(a, b)?, 4]",
        "f32[18, 5]",
        "%s = constant(value=0.0) : f32[]",
        "%v = pad(%x, %s, low=[2, 1], high=[0, 0], interior=[0, 0]) : f32[18, 5]",
        "return %v",
        mesh="mesh @m = [a=2, b=3]",
    )
    assert decision_of(rows[-1]) == (
        "%x", "a", "%v", "a, b", Verdict.CANNOT,
        "the operation cannot run with dimension 0 of %x sharded over a, b",
    )  # fmt: skip


def test_operations_do_not_pad_if_uneven_shardings_are_errors() -> None:
    program_parts = "%x: f32[6@a]", "f32[6]", "%v = neg(%x) : f32[6]", "return %v"
    pipeline = "propagate,reshard{{uneven={}}},partition"
    row = rows_of(*program_parts, pipeline=pipeline.format("error"))[-1]
    assert decision_of(row) == (
        "%x", "a:(1)2", "%v", "a", Verdict.CANNOT,
        "the operation cannot run with dimension 0 of %x sharded over a",
    )  # fmt: skip
    row = rows_of(*program_parts, pipeline=pipeline.format("pad"))[-1]
    assert decision_of(row) == (
        "%v", "a", "%x", "a:(1)2", Verdict.EQUAL,
        "each device receives 12 B, and would receive as much with dimension 0 of %x sharded over "
        "a:(1)2",
    )  # fmt: skip


def test_results_that_no_reduction_combines_are_not_reduced() -> None:
    params, result = "%x: f32[3, 4@a]", "f32[3@a, 2]"
    rows = rows_of(params, result, LARGEST, "return %v", pipeline=WITHOUT_RESOLUTION)
    reshards = {row.given_up.value: row.reshard for row in rows if row.op == "%v, %i = top_k"}
    assert reshards == {"%v": ("all-slice",), "%i": ("all-slice",)}


def test_moved_axes_are_those_of_no_tensor() -> None:
    """A sort moves the axes of its dimension to another one."""
    sort = "%v, %w = sort(%x, %y, dim=1) : f32[8, 8], f32[8, 8]"
    params, result = "%x: f32[8, 8], %y: f32[8, 8]", "f32[8@a:(2)2, 8@a:(1)2]"
    row = rows_of(params, result, sort, "return %v", pipeline=SHARDY)[0]
    assert decision_of(row) == (
        "%x", "a:(2)2, a:(1)2", "%v", "a:(2)2", Verdict.MAJORITY,
        "no tensor has exactly the kept axes; they are the parts of axes that tensors with the "
        "most elements have",
    )  # fmt: skip


def test_only_tensors_with_the_factor_have_a_majority() -> None:
    line = PRODUCT.replace("f32[8, 4]", "f32[8@b, 4]")
    rows = rows_of(
        "%x: f32[8@a, 8], %y: f32[8, 4]", "f32[8, 4]", line, "return %v", pipeline=SHARDY
    )
    assert [decision_of(row) for row in rows if row.verdict is Verdict.MAJORITY] == [
        ("%x", "a", "%v", "b", Verdict.MAJORITY, "64 elements against 32")
    ]


def test_a_constraint_keeps_a_dimension_unsharded_over_an_axis_of_another() -> None:
    line = "%v = sharding_constraint(%x) : f32[8, 8@a]"
    row = rows_of("%x: f32[8@a, 8]", "f32[8, 8]", line, "return %v")[0]
    assert decision_of(row) == ("%v", "-", "%x", "a", Verdict.STATED, "")


@pytest.mark.parametrize(
    ("result", "annotations"), [("f32[3@a?]", []), ("f32[3@a]", ["result 0: f32[3@a]"])]
)
def test_an_annotation_keeps_only_closed_dimensions_unsharded(
    result: str, annotations: list[str]
) -> None:
    """The axis of the result is trimmed because it does not divide the dimension."""
    rows = rows_of("%x: f32[3]", result, "%v = neg(%x) : f32[3]", "return %v")
    (kept,) = [row.kept for row in rows if row.op == "result 0 of @f"]
    assert (kept.axes, list(map(str, kept.annotations))) == ("-", annotations)


@pytest.mark.parametrize("mesh", [f"{ONE}\n{MESH}", f"mesh @n = [c=2]\n{MESH}"])
def test_scalars_are_on_the_mesh_of_the_other_tensors(mesh: str) -> None:
    """The first mesh is that of no tensor, or consists of a single device."""
    rows = rows_of(
        "%x: f32[8@a, 8] on @m, %y: f32[8, 8@a] on @m, %s: f32[]",
        "f32[8, 8]",
        "%p = lt(%s, %s) : bool[]",
        "%v = select(%p, %x, %y) : f32[8, 8]",
        "return %v",
        mesh=mesh,
        pipeline=WITHOUT_RESOLUTION,
    )
    assert [decision_of(row) for row in rows] == [
        (
            "%x", "a", "%y", "a", Verdict.EARLIER_TENSOR,
            "dimension 0 of %x against dimension 1 of %y: earlier tensor",
        )
    ]  # fmt: skip


def test_axes_pass_through_a_callback_that_runs_unsharded() -> None:
    """A registered rule states how axes propagate; a callback gets the complete array."""

    def double(x: sd.Array) -> sd.Array:
        shape = sd.ShapeDtypeStruct((8, 8), "float32")
        result: sd.Array = sd.pure_callback(lambda array: 2 * array, shape, x)
        return result

    rows = sd.NamedSharding(sd.make_mesh((2,), ("a",)), sd.P("a"))
    with sd.rules({"pure-callback": "i j -> i j"}):
        lowered = sd.jit(double).lower(sd.ShapeDtypeStruct((8, 8), "float32", sharding=rows))
        (conflict,) = lowered.conflicts().rows
    assert decision_of(conflict) == (
        "%x", "-", "%x", "a", Verdict.CANNOT, "the operation runs unsharded"
    )  # fmt: skip
    assert (conflict.reshard, conflict.nbytes) == (("all-gather",), 128)


MANUAL = (
    "%v = manual_computation(%x, axes=[a], in_axes=[[[a], []]], out_axes=[[[a], []]]) "
    ": f32[8, 8] {",
    "  (%p: f32[2, 8]) =>",
    "  %n = neg(%p) : f32[2, 8]",
    "  yield %n",
    "}",
    "return %v",
)


@pytest.mark.parametrize("type", ["f32[8, 8]", "f32[8@a, 8]", "f32[8, 8@b]", "f32[8@(a, b), 8]"])
def test_a_manual_axis_at_the_boundary_of_its_computation_is_no_conflict(type: str) -> None:
    assert rows_of(f"%x: {type}", "f32[8, 8]", *MANUAL) == ()


def test_a_scalar_operand_of_a_manual_computation() -> None:
    first = (
        MANUAL[0].replace("(%x,", "(%x, %s,").replace("[[[a], []]], out", "[[[a], []], []], out")
    )
    lines = first, MANUAL[1].replace(") =>", ", %t: f32[]) =>"), *MANUAL[2:]
    assert rows_of("%x: f32[8@a, 8], %s: f32[]", "f32[8, 8]", *lines) == ()


def test_an_operand_of_a_manual_computation_that_is_resharded() -> None:
    """The parameter states the manual axis for the operand; its type is that of a shard."""
    (row,) = rows_of("%x: f32[8@b, 8]", "f32[8, 8]", *MANUAL)
    assert decision_of(row) == ("%p", "a", "%x", "b", Verdict.STATED, "")
    assert (row.kept.elements, row.given_up.elements) == (64, 64)
    assert (row.reshard, row.nbytes) == (("all-slice", "collective-permute"), 64)


def test_a_result_of_a_manual_computation_that_is_resharded() -> None:
    """The returned value is sharded along the manual axis, too."""
    lines = (MANUAL[0], MANUAL[1], "  %n = neg(%p) : f32[2@b, 8@-]", *MANUAL[3:])
    row = rows_of("%x: f32[8@a, 8]", "f32[8, 8@b]", *lines)[0]
    assert row.op == "%v of manual_computation"
    assert decision_of(row) == ("%v", "a", "%n", "a, b", Verdict.STATED, "")
    assert (row.kept.elements, row.given_up.elements) == (64, 64)
    assert (row.reshard, row.nbytes) == (("all-to-all",), 16)
