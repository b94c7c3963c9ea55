"""The unified diff of two programs: its lines, and the lines that correspond."""

import difflib
import random
from collections.abc import Sequence

import pytest

from shardir.text.program_difference import find_changed_ranges, unified_diff


def diff(before: str, after: str) -> str:
    return "\n".join(unified_diff(before.splitlines(), after.splitlines(), "old", "new"))


def program(*lines: str) -> str:
    body = "\n".join(f"  {line}" for line in lines)
    return f"func @f(\n  %x: f32[4],\n) -> (f32[4]) {{\n{body}\n}}\n"


def test_equal_programs_have_no_difference() -> None:
    assert diff(program("return %x"), program("return %x")) == ""
    assert diff("", "") == ""


def test_lines_that_define_the_same_value_correspond() -> None:
    before = program("%a = neg(%x)", "%b = exp(%a)", "return %b")
    after = program("%a = neg(%x)", "%c = sin(%a)", "%b = exp(%c)", "return %b")
    assert (
        diff(before, after)
        == """\
--- old
+++ new
@@ -2,6 +2,7 @@
   %x: f32[4],
 ) -> (f32[4]) {
   %a = neg(%x)
-  %b = exp(%a)
+  %c = sin(%a)
+  %b = exp(%c)
   return %b
 }"""
    )


def test_a_new_block_has_its_own_end() -> None:
    loop = ("%a = scan(%x) {", "  %b = neg(%x)", "}")
    before = program(*loop, "return %a")
    after = program("%c = scan(%x) {", "  %d = exp(%x)", "}", *loop, "return %a")
    added = [line for line in diff(before, after).splitlines() if line[:1] == "+"]
    assert added == ["+++ new", "+  %c = scan(%x) {", "+    %d = exp(%x)", "+  }"]


def test_distant_changes_are_separate_hunks() -> None:
    values = [f"%v{i} = neg(%x)" for i in range(20)]
    before = program(*values)
    for other, count in ((9, 1), (10, 2)):
        after = before.replace("%v2 = neg", "%v2 = exp").replace(
            f"%v{other} = neg", f"%v{other} = exp"
        )
        heads = [line for line in diff(before, after).splitlines() if line[:2] == "@@"]
        assert len(heads) == count


def apply(ranges: Sequence[tuple[int, int, int, int]], before: list[str], after: list[str]) -> None:
    """Check that the changed ranges turn the first text into the second one."""
    made: list[str] = []
    at = 0
    for old_start, old_end, new_start, new_end in ranges:
        made += before[at:old_start]
        assert len(made) == new_start
        made += after[new_start:new_end]
        at = old_end
    assert made + before[at:] == after


@pytest.mark.sample(8)
@pytest.mark.parametrize("seed", range(200))
def test_the_changes_of_random_texts_turn_one_into_the_other(seed: int) -> None:
    draw = random.Random(seed)
    lines = ["func @f(", "func @g(", "  }", "}", ""]
    lines += [f"  %v{i} = {name}(%x)" for i in range(draw.randint(1, 8)) for name in ("neg", "exp")]
    before, after = (draw.choices(lines, k=draw.randint(0, 25)) for _ in range(2))
    apply(find_changed_ranges(before, after), before, after)


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(20))
def test_the_changes_of_few_lines_are_those_of_difflib(seed: int) -> None:
    draw = random.Random(seed)
    before = [f"  %v{i} = neg(%x)" for i in range(60)]
    after = list(before)
    for position in sorted(draw.sample(range(60), 5), reverse=True):
        change = draw.choice(("change", "insert", "delete"))
        name = f"  %w{position} = exp(%x)"
        if change == "change":
            after[position] = after[position].replace("neg", "exp")
        elif change == "insert":
            after.insert(position, name)
        else:
            del after[position]
    expected = list(difflib.unified_diff(before, after, "old", "new", lineterm=""))
    assert list(unified_diff(before, after, "old", "new")) == expected


def test_values_that_move_are_removed_and_added() -> None:
    before = program("%a = neg(%x)", "%b = exp(%x)", "%c = sin(%x)", "return %c")
    after = program("%b = exp(%x)", "%c = sin(%x)", "%a = neg(%x)", "return %c")
    changed = [line for line in diff(before, after).splitlines()[2:] if line[:1] in "+-"]
    assert changed == ["-  %a = neg(%x)", "+  %a = neg(%x)"]
