"""`rematerialize-gathers`: a gathered value with distant uses is gathered again."""

import numpy as np
import pytest

from shardir.cost.communication import list_collectives
from shardir.cost.memory import estimate_memory
from shardir.interpret.interpreter import run
from shardir.passes import RematerializeGathers
from shardir.text.parser import parse
from shardir.verify.verifier import verify

HEAD = """\
mesh @m = [x=4]

spmd func @f(
  %p: f32[4, 8] of f32[16@x, 8@-],
) -> (f32[16, 8] of f32[16@-, 8@-]) {
"""
IDLE = """\
  %w = all-gather(%p, dim=0, axes=[x]) : f32[16, 8]
  %a = sum(%w, dims=[0]) : f32[8]
  %b = exp(%a) : f32[8]
  %c = sin(%b) : f32[8]
  %d = broadcast(%c, dims=[1]) : f32[16, 8]
  %e = mul(%d, %w) : f32[16, 8]
  return %e
"""


def regathered(lines: str, minimum: int = 0, idle: int = 3) -> str:
    """Return the operations after the pass."""
    module = RematerializeGathers(minimum, idle)(parse(f"{HEAD}{lines}}}\n"))
    verify(module)
    return str(module).removeprefix(HEAD).removesuffix("}\n")


def test_a_late_use_has_its_own_gather() -> None:
    assert (
        regathered(IDLE)
        == """\
  %w = all-gather(%p, dim=0, axes=[x]) : f32[16, 8]
  %a = sum(%w, dims=[0]) : f32[8]
  %b = exp(%a) : f32[8]
  %c = sin(%b) : f32[8]
  %d = broadcast(%c, dims=[1]) : f32[16, 8]
  %w.regathered = all-gather(%p, dim=0, axes=[x]) : f32[16, 8]
  %e = mul(%d, %w.regathered) : f32[16, 8]
  return %e
"""
    )


@pytest.mark.parametrize(
    ("why", "reason"), [("", "the program requests it"), (' why("%p is sharded")', "%p is sharded")]
)
def test_a_repeated_gather_states_both_reasons(why: str, reason: str) -> None:
    lines = IDLE.replace("axes=[x]) : f32[16, 8]", f"axes=[x]) : f32[16, 8]{why}")
    module = RematerializeGathers(0, 3)(parse(f"{HEAD}{lines}}}\n"))
    *_, again, _ = module.main.body.ops
    assert again.why == f"%w is unused for long before this line; {reason}"


def test_small_or_soon_used_values_are_not_gathered_again() -> None:
    assert regathered(IDLE, idle=4) == IDLE
    assert regathered(IDLE, minimum=16 * 8 * 4 + 1) == IDLE


def test_memory_is_traded_for_communication() -> None:
    """Another large tensor is live between the two uses."""
    lines = """\
  %w = all-gather(%p, dim=0, axes=[x]) : f32[16, 8]
  %a = sum(%w, dims=[0]) : f32[8]
  %b = broadcast(%a, dims=[1]) : f32[64, 8]
  %c = exp(%b) : f32[64, 8]
  %d = sum(%c, dims=[0]) : f32[8]
  %e = broadcast(%d, dims=[1]) : f32[16, 8]
  %f = mul(%e, %w) : f32[16, 8]
  return %f
"""
    before = parse(f"{HEAD}{lines}}}\n")
    after = RematerializeGathers(0, 3)(before)
    assert estimate_memory(after).peak < estimate_memory(before).peak
    assert [len(list_collectives(module)) for module in (before, after)] == [1, 2]
    assert list_collectives(after)[1].why.startswith("%w is unused for long before this line")
    x = np.arange(128, dtype=np.float32).reshape(16, 8) / 128
    np.testing.assert_array_equal(run(after, [x])[0], run(before, [x])[0])


def test_other_values_are_not_repeated() -> None:
    lines = IDLE.replace("all-gather(%p, dim=0, axes=[x])", "broadcast(%v, dims=[1])")
    head = HEAD.replace("  %p:", "  %v: f32[8] of f32[8@-],\n  %p:")
    module = parse(f"{head}{lines}}}\n")
    assert str(RematerializeGathers(0, 3)(module)) == str(module)


def test_each_late_use_has_a_gather_of_its_own() -> None:
    """A use soon after a repeated gather reads that one, and so does a nested block."""
    lines = IDLE.replace(
        "  return %e\n",
        """\
  %g = add(%e, %w) : f32[16, 8]
  %h = exp(%g) : f32[16, 8]
  %i = exp(%h) : f32[16, 8]
  %j = exp(%i) : f32[16, 8]
  %k = add(%j, %w) : f32[16, 8]
  return %k
""",
    )
    text = regathered(lines)
    assert text.count("all-gather") == 3
    assert "%g = add(%e, %w.regathered)" in text
    assert "%k = add(%j, %w.regathered.1)" in text
