"""Buffers of the arena share bytes only if their live ranges do not overlap."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from shardir.backends.cpu.schedule.arena import (
    BUFFER_ALIGNMENT_BYTES,
    BufferKind,
    FreeList,
    PlannedBuffer,
    align_up,
    assign_offsets,
    match_pairs,
    reuse_operands,
)

SIZES_AND_LIVE_RANGES = st.lists(
    st.tuples(st.integers(0, 300), st.integers(0, 20), st.integers(0, 8)), max_size=30
)


@given(SIZES_AND_LIVE_RANGES)
def test_buffers_with_overlapping_live_ranges_are_disjoint(
    sizes_and_live_ranges: list[tuple[int, int, int]],
) -> None:
    buffers = [
        PlannedBuffer(BufferKind.ARENA, size, first=first, last=first + length)
        for size, first, length in sizes_and_live_ranges
    ]
    total = assign_offsets(buffers)
    for i, one in enumerate(buffers):
        assert one.offset % BUFFER_ALIGNMENT_BYTES == 0
        assert one.offset + align_up(one.nbytes) <= total or not one.nbytes
        for other in buffers[:i]:
            ranges_overlap = one.first <= other.last and other.first <= one.last
            is_disjoint = (
                one.offset + one.nbytes <= other.offset or other.offset + other.nbytes <= one.offset
            )
            assert is_disjoint or not ranges_overlap


def test_empty_buffers_lie_in_no_other_one() -> None:
    lives = [(0, 0, 1), (1, 0, 0), (65, 1, 1)]
    buffers = [
        PlannedBuffer(BufferKind.ARENA, size, first=first, last=last) for size, first, last in lives
    ]
    assert assign_offsets(buffers) == align_up(65)
    assert [each.offset for each in buffers] == [0, 0, 0]


def test_a_chain_needs_two_buffers() -> None:
    chain = [PlannedBuffer(BufferKind.ARENA, 1024, first=i, last=i + 1) for i in range(10)]
    assert assign_offsets(chain) == 2048


def test_swap_partners_have_equal_live_ranges() -> None:
    read = PlannedBuffer(BufferKind.ARENA, 64, first=0, last=9)
    write = PlannedBuffer(BufferKind.ARENA, 64, first=0, last=5, swap_partner=read)
    later = PlannedBuffer(BufferKind.ARENA, 64, first=7, last=8)
    assert assign_offsets([read, write, later]) == 192


def test_unused_buffers_take_no_space() -> None:
    assert assign_offsets([PlannedBuffer(BufferKind.ARENA, 64)]) == 0


def test_a_result_reuses_an_operand_that_dies() -> None:
    old, new = (
        PlannedBuffer(BufferKind.ARENA, 64, first=0, last=3),
        PlannedBuffer(BufferKind.ARENA, 64, first=3, last=5),
    )
    reuse_operands([(3, old, new)])
    assert new.reused_buffer is old


def test_a_result_of_branches_is_live_in_all_branches() -> None:
    result = PlannedBuffer(BufferKind.ARENA, 64, first=1, last=9)
    earlier = PlannedBuffer(BufferKind.ARENA, 64, first=2, last=3)
    old = PlannedBuffer(BufferKind.ARENA, 64, first=5, last=6)
    assert reuse_operands([(6, old, result)]) == []
    assert assign_offsets([result, earlier, old]) == 128
    assert earlier.offset != result.offset != old.offset


def pair(**changes: Any) -> tuple[PlannedBuffer, PlannedBuffer]:
    """An operand that ends where a result of the same size begins, with changed fields."""
    old = PlannedBuffer(BufferKind.ARENA, 64, number=4, first=0, last=3)
    new = PlannedBuffer(BufferKind.ARENA, 64, number=5, first=3, last=5)
    for name, value in changes.items():
        which, _, field = name.partition("_")
        setattr(old if which == "old" else new, field, value)
    return old, new


@pytest.mark.parametrize(
    "changes",
    [
        {"old_last": 4},
        {"new_first": 2},
        {"old_nbytes": 65},
        {"old_pinned": True},
        {"new_pinned": True},
        {"old_kind": BufferKind.CONSTANT},
        {"old_kind": BufferKind.ARGUMENT},
        {"new_kind": BufferKind.RESULT},
        {"old_kind": BufferKind.CONSTANT, "new_kind": BufferKind.RESULT},
        {"old_kind": BufferKind.ARGUMENT, "new_kind": BufferKind.CONSTANT},
    ],
)
def test_other_results_have_bytes_of_their_own(changes: dict[str, Any]) -> None:
    old, new = pair(**changes)
    assert reuse_operands([(3, old, new)]) == []
    assert new.reused_buffer is None


def test_an_operand_is_reused_once() -> None:
    old, one = pair()
    _, other = pair()
    assert reuse_operands([(3, old, one), (3, old, other)]) == []
    assert (one.reused_buffer, other.reused_buffer) == (old, None)


def test_a_result_reuses_one_operand() -> None:
    one, new = pair()
    other, _ = pair()
    reuse_operands([(3, one, new), (3, other, new)])
    assert new.reused_buffer is one


def test_an_argument_is_offered_to_every_result() -> None:
    old, new = pair(old_kind=BufferKind.ARGUMENT, new_kind=BufferKind.RESULT)
    _, other = pair(new_kind=BufferKind.RESULT)
    other.number = 6
    assert reuse_operands([(3, old, new), (3, old, other)]) == [(4, 5), (4, 6)]
    assert new.reused_buffer is None


def test_each_argument_and_each_result_is_matched_once() -> None:
    pairs = [(0, 5), (1, 5), (0, 6), (1, 6), (2, 6), (2, 7)]
    assert match_pairs(pairs) == {5: 0, 6: 1, 7: 2}


def test_reused_bytes_are_reserved_until_the_last_use() -> None:
    old, new = pair()
    new.reused_buffer = old
    later = PlannedBuffer(BufferKind.ARENA, 64, first=4, last=4)
    assert assign_offsets([old, new, later]) == 128
    assert old.offset == new.offset != later.offset


def test_free_bytes_are_joined() -> None:
    free = FreeList()
    starts = [free.allocate(64) for _ in range(5)]
    assert starts == [0, 64, 128, 192, 256]
    free.free(64, 64)
    free.free(192, 64)
    assert free.allocate(128) == 320
    free.free(128, 64)
    assert free.allocate(128) == 64
    assert free.allocate(32) == 192
    assert free.allocate(32) == 224
    assert free.end == 448


def test_the_smallest_gap_is_taken_and_the_last_one_grows() -> None:
    free = FreeList()
    for size in (128, 64, 64, 64, 256):
        free.allocate(size)
    free.free(0, 128)
    free.free(192, 64)
    assert free.allocate(64) == 192
    free.free(320, 256)
    assert (free.allocate(512), free.end) == (320, 832)
    free.free(0, 0)
    assert free.allocate(0) == 0
    assert free.allocate(128) == 0
