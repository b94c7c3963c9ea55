"""Which of two factors that request one axis gets it, and why."""

from tests.passes.explain.programs import explained, program

MESH = "mesh @m = [a=2]"
USED = "the axis already shards the tensor along another factor"
LOST = "another factor took the axis in the same step"
DELAYED = "axes do not propagate in this direction in this round"


def other_places_of_axis(
    name: str, params: str, result: str, *lines: str, mesh: str = MESH
) -> list[str]:
    """Return the lines that state where the axis `a` could also shard a value."""
    paragraphs = explained(program(params, result, *lines, mesh=mesh), name)
    return [
        line.removesuffix("  f.ir:3").strip()
        for paragraph in paragraphs
        if "could also shard" in paragraph
        for line in paragraph.splitlines()
    ]


def test_each_lost_factor_has_its_own_decision() -> None:
    assert other_places_of_axis(
        "%v",
        "%c: bool[8@a, 8, 8], %x: f32[8, 8@a, 8], %y: f32[8, 8, 8@a]",
        "f32[8, 8, 8]",
        "%v = select(%c, %x, %y) : f32[8, 8, 8]",
        "return %v",
    ) == [
        "a could also shard",
        f"dimension 1: {LOST}",
        "%v at %v = select",
        "dimension 0 of %c against dimension 1 of %x: earlier tensor",
        f"dimension 2: {LOST}",
        "%v at %v = select",
        "dimension 0 of %c against dimension 2 of %y: earlier tensor",
    ]


def test_a_decision_is_that_of_the_same_operation() -> None:
    """`select` brings the axis to %z along one factor, so that `concatenate` finds it there."""
    params = (
        "%c: bool[8@a, 8, 2], %z: f32[8, 8, 2], %x: f32[8, 8@a, 2], %d: f32[8, 8, 2], "
        "%y: f32[8, 8@a, 2]"
    )
    assert other_places_of_axis(
        "%z",
        params,
        "f32[8, 8, 2], f32[8, 8, 6]",
        "%v = select(%c, %z, %x) : f32[8, 8, 2]",
        "%w = concatenate(%d, %z, %y, dim=2) : f32[8, 8, 6]",
        "return %v, %w",
    ) == [
        "a could also shard",
        f"dimension 1: {LOST}",
        "%z at %v = select",
        "dimension 0 of %c against dimension 1 of %x: earlier tensor",
        f"dimension 1: {DELAYED}",
        "%z at %w = concatenate  f.ir:4",
        "the axis shards dimension 0 for argument %c: bool[8@a, 8, 2], since round 1",
    ]


def test_the_winner_is_that_of_the_tensor_that_lost_the_axis() -> None:
    """The first dimension of %s is closed, so that %s takes the axis along another factor."""
    found = other_places_of_axis(
        "%v",
        "%s: f32[8@-, 8, 8, 2], %p: f32[8@a, 8, 8, 2], %q: f32[8, 8@a, 8, 2], "
        "%r: f32[8, 8, 8@a, 2]",
        "f32[8, 8, 8, 8]",
        "%v = concatenate(%s, %p, %q, %r, dim=3) : f32[8, 8, 8, 8]",
        "return %v",
    )
    assert [line for line in found if "against" in line] == [
        "dimension 0 of %p against dimension 1 of %q: earlier tensor",
        "dimension 0 of %p against dimension 2 of %r: earlier tensor",
    ]


def test_a_factor_that_gets_a_part_of_an_axis_loses_the_rest() -> None:
    """The part that it gets is not reported."""
    assert other_places_of_axis(
        "%v",
        "%y: f32[8, 8@a:(2)2, 2], %x: f32[8@a, 8, 2]",
        "f32[8, 8, 4]",
        "%v = concatenate(%y, %x, dim=2) : f32[8, 8, 4]",
        "return %v",
        mesh="mesh @m = [a=4]",
    ) == [
        "a:(2)2 could also shard",
        f"dimension 0: {LOST}",
        "%v at %v = concatenate",
        "dimension 1 of %y against dimension 0 of %x: earlier tensor",
    ]


def test_a_factor_that_takes_no_axes_loses_none() -> None:
    """In the step in which the other dimension gets the axis, a sort refuses it along its own."""
    found = other_places_of_axis(
        "%w",
        "%x: f32[8, 4], %y: f32[8@a, 4]",
        "f32[8, 4@a]",
        "%v, %w = sort(%x, %y, dim=1) : f32[8, 4], f32[8, 4]",
        "return %v",
    )
    assert found[1] == f"dimension 1: {DELAYED}"


def test_an_axis_is_delayed_only_if_it_was_there_before_the_other() -> None:
    """In round 0, %u gets the axis from %x, and %v from the result; `reverse` propagates later."""
    parts = (
        "%x: f32[8@a, 4]",
        "f32[8, 4@a]",
        "%u = neg(%x) : f32[8, 4]",
        "%v = reverse(%u, dims=[1]) : f32[8, 4]",
        "return %v",
    )
    assert other_places_of_axis("%u", *parts)[1] == f"dimension 1: {DELAYED}"
    assert other_places_of_axis("%v", *parts)[1] == f"dimension 0: {USED}"


def test_barriers_and_results_of_the_function_have_no_rounds() -> None:
    barrier = "%v = optimization_barrier(%x) : f32[8, 4]"
    assert other_places_of_axis("%v", "%x: f32[8@a, 4]", "f32[8, 4@a]", barrier, "return %v") == [
        "a could also shard",
        f"dimension 0: {USED}",
        "%v at %v of optimization_barrier",
        "the axis shards dimension 1 for result 0: f32[8, 4@a], since round 0",
    ]
    line, results = "%v = neg(%x) : f32[8, 4]", "f32[8@a, 4], f32[8, 4@a]"
    assert other_places_of_axis("%v", "%x: f32[8, 4]", results, line, "return %v, %v") == [
        "a could also shard",
        f"dimension 1: {USED}",
        "%v at result 1 of @f  f.ir:2",
        "the axis shards dimension 0 for result 0: f32[8@a, 4], since round 0",
    ]
