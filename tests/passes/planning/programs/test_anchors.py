"""Values inside of programs whose shardings no argument determines."""

from collections.abc import Mapping, Sequence

from shardir.ir.mesh import Mesh
from shardir.ir.module import Module
from shardir.passes.planning.programs.anchors import MAX_ANCHORS, find_anchors
from shardir.text.parser import parse

LINE = Mesh("m", (("x", 4),))


def program(*lines: str) -> Module:
    """Return a function with a number as its argument and these lines."""
    body = "\n".join(f"  {line}" for line in lines)
    return parse(f"mesh @m = [x=4]\nfunc @f(%c: f32[]) -> (f32[]) {{\n{body}\n  return %c\n}}\n")


def anchors_of(
    module: Module,
    groups: Mapping[str, tuple[int, ...]],
    known: Sequence[int] = (),
    mesh: Mesh = LINE,
    *,
    pads: bool = False,
) -> list[str]:
    """Return the names of the anchors, with the groups of values by their names."""
    body = module.main.body
    of_value = {value: groups[value.name] for value in body.values() if value.name in groups}
    return [value.name for value in find_anchors(body, of_value, known, mesh, pads=pads)]


def test_a_program_without_operations_has_no_anchors() -> None:
    assert anchors_of(program(), {"c": ()}) == []


def test_one_value_stands_for_each_unknown_group() -> None:
    """The largest value comes first, and of two alike the one with a name of the user."""
    module = program(
        "%0 = broadcast(%c, dims=[]) : f32[8]",
        "%a = neg(%0) : f32[8]",
        "%b = broadcast(%a, dims=[0]) : f32[8, 4]",
        "%d = broadcast(%c, dims=[]) : f32[16]",
    )
    groups = {"0": (0,), "a": (0,), "b": (0, 1), "d": (2,)}
    assert anchors_of(module, groups) == ["b", "d"]
    assert anchors_of(module, groups, known=[1]) == ["b", "d"]
    assert anchors_of(module, groups, known=[0, 1]) == ["d"]
    del groups["b"]
    assert anchors_of(module, groups) == ["d", "a"]


def test_values_that_are_a_small_part_of_the_largest_one_are_no_anchors() -> None:
    module = program(
        "%a = broadcast(%c, dims=[]) : f32[128]",
        "%b = broadcast(%c, dims=[]) : f32[8]",
        "%d = broadcast(%c, dims=[]) : f32[4]",
    )
    assert anchors_of(module, {"a": (0,), "b": (1,), "d": (2,)}) == ["a", "b"]


def test_values_with_shardings_and_constants_are_no_anchors() -> None:
    module = program(
        "%a = iota(dim=0) : f32[8]",
        "%b = broadcast(%c, dims=[]) : f32[8@x]",
    )
    assert anchors_of(module, {"a": (0,), "b": (1,)}) == []


def test_an_axis_can_shard_a_dimension_of_each_anchor() -> None:
    """Axes divide the dimensions of anchors, or are not larger than they are with padding."""
    module = program(
        "%a = broadcast(%c, dims=[]) : f32[4]",
        "%b = broadcast(%c, dims=[]) : f32[6]",
        "%d = broadcast(%c, dims=[]) : f32[3]",
    )
    groups = {"a": (0,), "b": (1,), "d": (2,)}
    assert anchors_of(module, groups) == ["a"]
    assert anchors_of(module, groups, pads=True) == ["b"]
    single = Mesh("m", (("x", 1),))
    assert anchors_of(module, groups, mesh=single) == []


def test_a_dimension_without_elements_needs_no_anchor() -> None:
    module = program("%a = broadcast(%c, dims=[]) : f32[0, 3]")
    assert anchors_of(module, {"a": (0, 1)}) == []


def test_results_that_introduce_a_clash_are_anchors() -> None:
    """Also where an argument determines the group; values that are computed from them are none, and
    each pair of groups has one anchor."""
    module = program(
        "%a = broadcast(%c, dims=[]) : f32[8, 8]",
        "%b = neg(%a) : f32[8, 8]",
        "%d = broadcast(%c, dims=[]) : f32[8, 8]",
        "%e = broadcast(%c, dims=[]) : f32[8, 8]",
    )
    groups = {"a": (0, 0), "b": (0, 0), "d": (0, 0), "e": (1, 1)}
    assert anchors_of(module, groups, known=[0, 1]) == ["a", "e"]
    assert anchors_of(module, groups, known=[0]) == ["e", "a"]
    assert anchors_of(module, {"a": (0, 1)}, known=[0, 1]) == []


def test_a_clash_that_a_value_with_a_sharding_introduces_needs_no_anchor() -> None:
    module = program(
        "%a = broadcast(%c, dims=[]) : f32[8, 8@x]",
        "%b = neg(%a) : f32[8, 8]",
    )
    assert anchors_of(module, {"a": (0, 0), "b": (0, 0)}, known=[0]) == []


def test_an_axis_can_shard_the_dimensions_of_a_clash() -> None:
    module = program("%a = broadcast(%c, dims=[]) : f32[6, 6, 8]")
    assert anchors_of(module, {"a": (0, 0, 1)}, known=[0, 1]) == []
    assert anchors_of(module, {"a": (0, 1, 1)}, known=[0, 1]) == ["a"]


def test_the_number_of_anchors_is_limited() -> None:
    count = MAX_ANCHORS + 1
    lines = [f"%v{n} = broadcast(%c, dims=[]) : f32[{4 * (n + 2)}]" for n in range(count)]
    found = anchors_of(program(*lines), {f"v{n}": (n,) for n in range(count)})
    assert found == [f"v{n}" for n in reversed(range(1, count))]
