"""`simplify` keeps an all-gather of which a device uses more or others than its own shard."""

import pytest

from shardir.passes import Pipeline
from shardir.text.parser import parse
from tests.programs.bit_exact_programs import exact_difference
from tests.programs.near_misses import disagreements

PROGRAM = """\
mesh @m = [d=2, e=2]

spmd func @f(
  %x: f32[2, 4] of f32[8@(d, e), 4],
) -> (f32[4, 4] of f32[4, 4], f32[2, 4] of f32[2, 4]) {{
  %g = all-gather(%x, axes=[d], dim=0) : f32[4, 4]
  %i = axis-index(axes=[{axis}]) : i32[]
  %n = constant(value={factor}) : i32[]
  %start = mul(%i, %n) : i32[]
  %zero = constant(value=0) : i32[]
  %y = dynamic_slice(%g, %start, %zero) : f32[2, 4]
  return %g, %y
}}
"""


def simplified(axis: str, factor: int) -> list[str]:
    module = Pipeline.parse("simplify,dce")(parse(PROGRAM.format(axis=axis, factor=factor)))
    return [op.name for op in module.main.body.ops]


def test_the_own_shard_needs_no_slice() -> None:
    assert simplified("d", 2) == ["all-gather"]


@pytest.mark.parametrize(("axis", "factor"), [("e", 2), ("d", 1)])
def test_another_slice_stays(axis: str, factor: int) -> None:
    assert "dynamic_slice" in simplified(axis, factor)


@pytest.mark.parametrize(
    ("predicate", "is_kept"),
    [
        ("lt(%start, %zero)", False),
        ("lt(%m, %zero)", True),
        ("lt(%start, %n)", True),
        ("lt(%start, %m)", True),
        ("ge(%start, %zero)", True),
    ],
)
def test_only_the_wrapping_of_the_start_itself_is_left_out(predicate: str, is_kept: bool) -> None:
    text = PROGRAM.format(axis="d", factor=2).replace(
        "  %y = dynamic_slice(%g, %start,",
        f"""\
  %less = {predicate} : bool[]
  %size = constant(value=4) : i32[]
  %above = add(%start, %size) : i32[]
  %wrapped = select(%less, %above, %start) : i32[]
  %y = dynamic_slice(%g, %wrapped,""",
    )
    text = text.replace("  %n =", "  %m = axis-index(axes=[e]) : i32[]\n  %n =")
    module = Pipeline.parse("simplify,dce")(parse(text))
    assert ("dynamic_slice" in [op.name for op in module.main.body.ops]) == is_kept


@pytest.mark.parametrize("size", ["1, 4", "2, 2", "3, 4"])
def test_a_slice_of_another_size_than_the_shard_stays(size: str) -> None:
    text = PROGRAM.format(axis="d", factor=2).replace(
        "f32[2, 4] of f32[2, 4]", f"f32[{size}] of f32[{size}]"
    )
    text = text.replace("%zero) : f32[2, 4]", f"%zero) : f32[{size}]")
    module = Pipeline.parse("simplify,dce")(parse(text))
    assert "dynamic_slice" in [op.name for op in module.main.body.ops]


def test_programs_that_resemble_a_slice_of_a_gather_keep_their_results() -> None:
    module = parse(PROGRAM.format(axis="d", factor=2))
    found = disagreements(module, "simplify,dce", exact_difference)
    assert not found, found[0]


ALL_SLICE = """\
mesh @m = [d=2, e=2]

spmd func @f(
  %x: f32[2, 4] of f32[8@(d, e), 4],
) -> ({results}) {{
  %g = all-gather(%x, axes=[d, e], dim=0) : f32[8, 4]
  %y = all-slice(%g, axes=[{axes}], dim={dim}) : {type}
  return {returned}
}}
"""


@pytest.mark.parametrize(
    ("axes", "dim", "type"),
    [
        ("e", 0, "f32[4, 4]"),  # The devices of `e` hold rows apart.
        ("d", 1, "f32[8, 2]"),
        ("e, d", 0, "f32[2, 4]"),
    ],
)
def test_a_slice_along_other_axes_stays(axes: str, dim: int, type: str) -> None:
    text = ALL_SLICE.format(
        axes=axes, dim=dim, type=type, results=f"{type} of {type}", returned="%y"
    )
    module = Pipeline.parse("simplify,dce")(parse(text))
    assert [op.name for op in module.main.body.ops] == ["all-gather", "all-slice"]


def test_a_kept_gather_is_not_replaced_by_a_smaller_one() -> None:
    text = ALL_SLICE.format(
        axes="d", dim=0, type="f32[4, 4]", results="f32[4, 4] of f32[4, 4]", returned="%y"
    )
    for passes, names in (
        ("simplify,dce", ["all-gather"]),
        ("simplify{keep=collectives},dce{keep=collectives}", ["all-gather", "all-slice"]),
    ):
        module = Pipeline.parse(passes)(parse(text))
        assert [op.name for op in module.main.body.ops] == names


def test_a_gather_with_other_uses_is_not_repeated() -> None:
    text = ALL_SLICE.format(
        axes="d",
        dim=0,
        type="f32[4, 4]",
        results="f32[8, 4] of f32[8, 4], f32[4, 4] of f32[4, 4]",
        returned="%g, %y",
    )
    module = Pipeline.parse("simplify,dce")(parse(text))
    assert [op.name for op in module.main.body.ops] == ["all-gather", "all-slice"]
