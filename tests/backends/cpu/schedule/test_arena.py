"""Buffers of the arena share bytes only if their live ranges do not overlap."""

from hypothesis import given, strategies as st

from shardir.backends.cpu.schedule.arena import (
    BUFFER_ALIGNMENT_BYTES,
    BufferKind,
    PlannedBuffer,
    align_up,
    assign_offsets,
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
