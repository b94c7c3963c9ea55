"""Dimensions that the operations of a program shard alike."""

from shardir.passes.planning.programs.dimension_groups import find_dimension_groups
from shardir.text.parser import parse


def groups_of(params: str, result: str, *lines: str) -> dict[str, tuple[int, ...]]:
    """Return the groups of the values of a function by their names."""
    body = "\n".join(f"  {line}" for line in lines)
    text = f"mesh @m = [x=2]\nfunc @f({params}) -> ({result}) {{\n{body}\n}}\n"
    found = find_dimension_groups(parse(text))
    groups = {value.name: own for value, own in found.of_value.items()}
    assert {group for own in groups.values() for group in own} == set(range(found.count))
    return groups


def test_factors_connect_dimensions() -> None:
    """The last product connects both dimensions of the second argument."""
    lines = (
        '%y = dot(%x, %w, dims="ij,jk->ik") : f32[4, 8]',
        '%z = dot(%y, %w, dims="ij,jk->ik") : f32[4, 8]',
        "return %z",
    )
    assert groups_of("%x: f32[4, 8], %w: f32[8, 8]", "f32[4, 8]", *lines) == {
        "x": (0, 1), "w": (1, 1), "y": (0, 1), "z": (0, 1),
    }  # fmt: skip


def test_factors_that_cannot_be_sharded_connect_nothing() -> None:
    lines = "%y = sort(%x, dim=1) : f32[4, 8]", "return %y"
    assert groups_of("%x: f32[4, 8]", "f32[4, 8]", *lines) == {"x": (0, 1), "y": (0, 2)}


def test_a_dimension_of_several_factors_has_the_group_of_the_major_one() -> None:
    """Factors of size 1 are left out."""
    lines = (
        "%y = reshape(%x) : f32[1, 32]",
        "%z = reshape(%y) : f32[32]",
        "return %z",
    )
    assert groups_of("%x: f32[4, 8]", "f32[32]", *lines) == {
        "x": (0, 1), "y": (2, 0), "z": (0,)
    }  # fmt: skip


def test_loops_connect_what_they_carry_and_their_slices() -> None:
    lines = (
        "%c, %ys = scan(%x, %xs, carries=1, length=3, reverse=false) : f32[4], f32[3, 4] {",
        "  (%a: f32[4], %b: f32[4]) =>",
        "  %d = add(%a, %b) : f32[4]",
        "  yield %d, %b",
        "}",
        "return %c",
    )
    assert groups_of("%x: f32[4], %xs: f32[3, 4]", "f32[4]", *lines) == {
        "x": (0,), "xs": (1, 0), "c": (0,), "a": (0,), "d": (0,), "b": (0,), "ys": (2, 0),
    }  # fmt: skip
