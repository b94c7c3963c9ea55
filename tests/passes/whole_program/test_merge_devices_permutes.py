"""Permutations of devices become slices, reversals or gathers of the merged program."""

import numpy as np
import pytest

from shardir import parse
from shardir.interpret.interpreter import run
from shardir.interpret.random_arguments import random_arguments
from shardir.ir.module import Module
from shardir.passes.whole_program.permutes import MAX_PERMUTE_SLICES
from tests.passes.whole_program.merge_comparison import merged, merged_difference, run_merged
from tests.programs.near_misses import disagreements

FOLDING = "merge-devices,cse,dce"
PERMUTE = """\
mesh @m = [d=COUNT]

spmd func @main(
  %x: f32[1, 3] of f32[COUNT@d, 3],
) -> (f32[1, 3] of f32[COUNT@d, 3]) {
  %y = collective-permute(%x, axes=[d], pairs=PAIRS) : f32[1, 3]
  return %y
}
"""
Senders = list[int | None]
SHUFFLED = [int(i) for i in np.random.default_rng(0).permutation(40)]
CASES: dict[str, tuple[Senders, list[str]]] = {
    "no sender": ([None] * 4, ["constant"]),
    "each device itself": ([0, 1, 2, 3], []),
    "one device without a sender": ([0, 1, 2, None], ["slice", "constant", "concatenate"]),
    "a shift": ([3, 0, 1, 2], ["slice", "slice", "concatenate"]),
    "the opposite order": ([3, 2, 1, 0], ["reverse"]),
    "every other device": ([0, 2, 4, 1, 3, 5], ["slice", "slice", "concatenate"]),
    "steps of one device": ([0, 3, 1, 4, 2, 5], [*["slice"] * 6, "concatenate"]),
    "swapped neighbors": ([i ^ 1 for i in range(8)], ["reverse"]),
    "two swapped digits": ([i ^ 5 for i in range(8)], ["reverse"]),
    "swapped neighbors, but the last two": (
        [1, 0, 3, 2, 5, 4, 6, 7],
        [*["slice", "reverse"] * 3, "slice", "concatenate"],
    ),
    "six swapped neighbors": (
        [i ^ 1 for i in range(6)],
        [*["slice", "reverse"] * 3, "concatenate"],
    ),
    "swapped neighbors without the first sender": (
        [None, 0, 3, 2, 5, 4, 7, 6],
        ["constant", "slice", *["slice", "reverse"] * 3, "concatenate"],
    ),
    "swapped neighbors without the last sender": (
        [1, 0, 3, 2, 5, 4, 7, None],
        [*["slice", "reverse"] * 3, "slice", "constant", "concatenate"],
    ),
    "no order": ([*SHUFFLED], ["constant", "gather"]),
    "no order, and devices without a sender": (
        [of if i % 7 else None for i, of in enumerate(SHUFFLED)],
        ["constant", "gather", "constant", "broadcast", "constant", "select"],
    ),
}


def permute(senders: Senders) -> Module:
    pairs = str([[of, to] for to, of in enumerate(senders) if of is not None])
    return parse(PERMUTE.replace("COUNT", str(len(senders))).replace("PAIRS", pairs))


@pytest.mark.parametrize(("senders", "operations"), CASES.values(), ids=CASES)
def test_permutations_have_the_form_that_their_order_allows(
    senders: Senders, operations: list[str]
) -> None:
    program = permute(senders)
    one = merged(program, FOLDING)
    assert [op.name for op in one.main.body.ops if op.name != "reshape"] == operations
    arguments = random_arguments(program, whole=True)
    for want, got in zip(run(program, arguments), run_merged(program, one, arguments), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("senders", [senders for senders, _ in CASES.values() if len(senders) < 9])
def test_programs_that_resemble_permutations_keep_their_results(senders: Senders) -> None:
    found = disagreements(permute(senders), FOLDING, merged_difference)
    assert not found, found[0]


@pytest.mark.parametrize("count", [MAX_PERMUTE_SLICES, MAX_PERMUTE_SLICES + 1])
def test_more_slices_than_the_maximum_are_a_gather(count: int) -> None:
    senders: Senders = [i // 2 + i % 2 * ((count + 1) // 2) for i in range(count)]
    program = permute(senders)
    operations = {op.name for op in merged(program, FOLDING).main.body.ops}
    assert ("gather" in operations) == (count > MAX_PERMUTE_SLICES)


@pytest.mark.parametrize(
    ("pairs", "operations"),
    [("[[0, 1], [1, 0]]", []), ("[[0, 1]]", ["broadcast", "constant", "slice", "concatenate"])],
)
def test_a_value_that_all_devices_have_is_sent_only_where_one_receives_nothing(
    pairs: str, operations: list[str]
) -> None:
    program = parse(f"""\
mesh @m = [d=2]

spmd func @main(
  %x: f32[3] of f32[3],
) -> (f32[3] of f32[6@d]) {{
  %y = collective-permute(%x, axes=[d], pairs={pairs}) : f32[3]
  return %y
}}
""")
    one = merged(program, FOLDING)
    arguments = random_arguments(program, whole=True)
    assert not merged_difference(program, one, arguments)
    permuted = [op.name for op in one.main.body.ops if "collective-permute" in op.why]
    assert permuted == operations, str(one)
