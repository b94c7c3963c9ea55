"""Exactly the operations of a gather of single elements with wrapped indices become one item."""

import numpy as np
import pytest

from shardir.backends.cpu.schedule.function_lowering import lower_function
from shardir.backends.cpu.schedule.gather_fusion import fuse_gathers
from shardir.backends.cpu.schedule.items import CopyItem, GatherElements, WorkItem
from shardir.text.parser import parse

WRAPPED = """\
  %w = fused(%i) : i32[4] {
    (%a: i32[4]) =>
    %zero = constant(value=0) : i32[4]
    %negative = lt(%a, %zero) : bool[4]
    %extent = constant(value=10) : i32[4]
    %shifted = add(%a, %extent) : i32[4]
    %wrapped = select(%negative, %shifted, %a) : i32[4]
    yield %wrapped
  }
"""
GATHER = """\
  %k = reshape(%w) : i32[4, 1]
  %y = gather(%x, %k, offset_dims=[], collapsed_dims=[0], start_index_map=[0]) : f32[4]
"""
CHOSEN = """\
  %r = fused(%w, %n, %y, %z) : f32[4] {
    (%b: i32[4], %m: i32[1], %c: f32[4], %d: f32[4]) =>
    %least = constant(value=0) : i32[4]
    %not_below = ge(%b, %least) : bool[4]
    %scalar = reshape(%m) : i32[]
    %end = broadcast(%scalar, dims=[]) : i32[4]
    %not_above = lt(%b, %end) : bool[4]
    %inside = and(%not_below, %not_above) : bool[4]
    %fill = constant(value=3.0) : f32[4]
    %chosen = select(%inside, %c, %fill) : f32[4]
    yield %chosen
  }
"""
COUNT = "  %n = constant(value=dense(i32, [10])) : i32[1]\n"
PROGRAM = (
    "func @f(%x: f32[10], %i: i32[4], %j: i32[4], %z: f32[4]) -> (f32[4]) {\n"
    f"{COUNT}{WRAPPED}{GATHER}{CHOSEN}  return %r\n}}\n"
)
FILL = int(np.float32(3).view(np.int32))
NOT_FUSED = ["fused", "gather", "fused"]


def items_of(text: str) -> list[str]:
    """Return the names of the items of a function, and the fill value of fused gathers."""
    names = []
    for item in fuse_gathers(lower_function(parse(text).main, {})).items:
        if isinstance(item, GatherElements):
            names.append("clamp" if item.fill is None else f"fill {item.fill}")
        else:
            assert isinstance(item, CopyItem | WorkItem)
            names.append("copy" if isinstance(item, CopyItem) else item.op.name)
    return names


def test_wrapped_indices_a_gather_and_a_fill_value_are_one_item() -> None:
    assert items_of(PROGRAM) == [f"fill {FILL}"]
    assert items_of(PROGRAM.replace(CHOSEN, "").replace("%r", "%y")) == ["clamp"]


@pytest.mark.parametrize(
    "change",
    [
        # The indices are computed by another operation.
        (WRAPPED, "  %w = abs(%i) : i32[4]\n"),
        (
            "fused(%i) : i32[4] {\n    (%a: i32[4])",
            "fused(%i, %j) : i32[4] {\n    (%a: i32[4], %e: i32[4])",
        ),
        # They are used elsewhere, or have another layout than the given ones.
        ("return %r", "return %r, %w"),
        ("return %r", "return %r, %v"),
        ("fused(%i)", "fused(%spaced)"),
        ("add(%a, %extent)", "sub(%a, %extent)"),
    ],
)  # fmt: skip
def test_other_indices_are_computed(change: tuple[str, str]) -> None:
    changed = PROGRAM.replace(*change)
    if "%v" in changed:
        changed = changed.replace("return", "%v = convert(%w) : f32[4]\n  return")
        changed = changed.replace("-> (f32[4])", "-> (f32[4], f32[4])")
    elif "%r, %w" in changed:
        changed = changed.replace("-> (f32[4])", "-> (f32[4], i32[4])")
    elif "%spaced" in changed:
        strided = "  %spaced = slice(%i, starts=[0], strides=[2]) : i32[4]\n"
        changed = changed.replace(COUNT, COUNT + strided).replace("%i: i32[4]", "%i: i32[7]")
    names = items_of(changed)
    assert names[1:3] == NOT_FUSED[1:]
    assert len(names) == 3 + ("%v" in changed)


def test_the_indices_of_another_gather_are_computed() -> None:
    other = WRAPPED.replace("%w ", "%v ").replace("(%i)", "(%j)")
    for name in ("a", "zero", "negative", "extent", "shifted", "wrapped"):
        other = other.replace(f"%{name}:", f"%{name}.1:").replace(f"%{name} ", f"%{name}.1 ")
        other = other.replace(f"%{name},", f"%{name}.1,").replace(f"%{name})", f"%{name}.1)")
        other = other.replace(f"%{name}\n", f"%{name}.1\n")
    changed = PROGRAM.replace(GATHER, other + GATHER).replace("fused(%w, %n", "fused(%v, %n")
    assert items_of(changed) == ["fused", *NOT_FUSED]


def test_copied_indices_are_not_wrapped() -> None:
    copied = "  %t = transpose(%i, perm=[1, 0]) : i32[2, 2]\n  %w = reshape(%t) : i32[4]\n"
    changed = PROGRAM.replace(WRAPPED, copied).replace("%i: i32[4]", "%i: i32[2, 2]")
    assert items_of(changed) == ["copy", "gather", "fused"]


@pytest.mark.parametrize(
    ("array", "gathered", "result"),
    [
        # Several elements for each index.
        (
            "f32[10, 3]",
            "  %k = reshape(%w) : i32[4, 1]\n  %y = gather(%x, %k, offset_dims=[1], "
            "collapsed_dims=[0], start_index_map=[0]) : f32[4, 3]\n",
            "f32[4, 3]",
        ),
        # Several indices for each element, and as many elements as indices.
        (
            "f32[10, 10, 2]",
            "  %k = reshape(%w) : i32[2, 2]\n  %y = gather(%x, %k, offset_dims=[1], "
            "collapsed_dims=[0, 1], start_index_map=[0, 1]) : f32[2, 2]\n",
            "f32[2, 2]",
        ),
        # The same index for several elements.
        (
            "f32[10]",
            "  %k = broadcast(%w, dims=[0]) : i32[4, 2, 1]\n  %y = gather(%x, %k, offset_dims=[], "
            "collapsed_dims=[0], start_index_map=[0]) : f32[4, 2]\n",
            "f32[4, 2]",
        ),
    ],
)
def test_gathers_of_other_than_single_elements_are_not_fused(
    array: str, gathered: str, result: str
) -> None:
    changed = PROGRAM.replace("f32[10]", array).replace(GATHER, gathered).replace(CHOSEN, "")
    changed = changed.replace("(f32[4])", f"({result})").replace("return %r", "return %y")
    assert items_of(changed) == ["fused", "gather"]


@pytest.mark.parametrize(
    "change",
    [
        (CHOSEN, "  %r = exp(%y) : f32[4]\n"),
        ("fused(%w, %n, %y, %z)", "fused(%j, %n, %y, %z)"),
        ("fused(%w, %n, %y, %z)", "fused(%w, %n, %z, %z)"),
        ("%chosen = select(%inside, %c, %fill)", "%chosen = add(%c, %fill)"),
        ("ge(%b, %least)", "gt(%b, %least)"),
        ("select(%inside, %c, %fill)", "select(%inside, %fill, %c)"),
        ("select(%inside, %c, %fill)", "select(%inside, %d, %fill)"),
        ("select(%inside, %c, %fill)", "select(%inside, %c, %d)"),
        ("select(%inside, %c, %fill)", "select(%inside, %c, %other)"),
        ("dense(i32, [10])", "dense(i32, [9])"),
    ],
)
def test_operations_that_write_no_fill_value_are_not_fused(change: tuple[str, str]) -> None:
    changed = PROGRAM.replace(*change)
    if "%other" in changed:
        difference = "    %other = sub(%fill, %d) : f32[4]\n    %chosen"
        changed = changed.replace("    %chosen", difference)
    if "%y" not in changed.partition("%r = ")[2]:
        changed = changed.replace("return %r", "return %r, %y").replace(
            "-> (f32[4])", "-> (f32[4], f32[4])"
        )
    indices_are_unused = "%w" not in changed.partition("%r = ")[2]
    expected = ["clamp"] if indices_are_unused else ["fused", "gather"]
    assert items_of(changed) == [*expected, changed.partition("%r = ")[2].partition("(")[0]]


def test_an_extent_of_several_numbers_is_no_fill_condition() -> None:
    changed = PROGRAM.replace("dense(i32, [10])) : i32[1]", "dense(i32, [10, 10, 9, 9])) : i32[4]")
    changed = changed.replace("%m: i32[1]", "%m: i32[4]").replace("lt(%b, %end)", "lt(%b, %m)")
    for line in (
        "    %scalar = reshape(%m) : i32[]\n",
        "    %end = broadcast(%scalar, dims=[]) : i32[4]\n",
    ):
        changed = changed.replace(line, "")
    assert items_of(changed) == NOT_FUSED


def test_repeated_elements_are_not_written_by_the_gather() -> None:
    chosen = CHOSEN.replace("f32[4]", "f32[5, 4]").replace("bool[4]", "bool[5, 4]")
    chosen = (
        chosen.replace(
            "(%b: i32[4], %m: i32[1], %c: f32[5, 4], %d: f32[5, 4]) =>",
            (
                "(%b.1: i32[4], %m: i32[1], %c.1: f32[4], %d: f32[4]) =>\n"
                "    %b = broadcast(%b.1, dims=[1]) : i32[5, 4]\n"
                "    %c = broadcast(%c.1, dims=[1]) : f32[5, 4]"
            ),
        )
        .replace("value=0) : i32[4]", "value=0) : i32[5, 4]")
        .replace("[]) : i32[4]", "[]) : i32[5, 4]")
    )
    changed = PROGRAM.replace(CHOSEN, chosen).replace("-> (f32[4])", "-> (f32[5, 4])")
    assert items_of(changed) == NOT_FUSED


def test_gathers_from_empty_arrays_are_not_fused() -> None:
    assert items_of(PROGRAM.replace("10", "0").replace("[4", "[0")) == NOT_FUSED
