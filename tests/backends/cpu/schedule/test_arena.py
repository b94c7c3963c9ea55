"""Buffers that are alive together never share bytes of the arena, others do."""

from hypothesis import given, strategies as st

from shardir.backends.cpu.schedule.arena import (
    BUFFER_ALIGNMENT_BYTES,
    BufferKind,
    PlannedBuffer,
    align_up,
    assign_offsets,
    reuse_operands,
)

LIVES = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 20), st.integers(0, 8)), max_size=30)


@given(LIVES)
def test_what_is_alive_together_lies_apart(lives: list[tuple[int, int, int]]) -> None:
    buffers = [
        PlannedBuffer(BufferKind.ARENA, size, first=first, last=first + length)
        for size, first, length in lives
    ]
    total = assign_offsets(buffers)
    for i, one in enumerate(buffers):
        assert one.offset % BUFFER_ALIGNMENT_BYTES == 0
        assert one.offset + align_up(one.nbytes) <= total or not one.nbytes
        for other in buffers[:i]:
            together = one.first <= other.last and other.first <= one.last
            apart = (
                one.offset + one.nbytes <= other.offset or other.offset + other.nbytes <= one.offset
            )
            assert apart or not together


def test_a_chain_needs_two_places() -> None:
    chain = [PlannedBuffer(BufferKind.ARENA, 1024, first=i, last=i + 1) for i in range(10)]
    assert assign_offsets(chain) == 2048


def test_partners_live_equally_long() -> None:
    read = PlannedBuffer(BufferKind.ARENA, 64, first=0, last=9)
    write = PlannedBuffer(BufferKind.ARENA, 64, first=0, last=5, swap_partner=read)
    later = PlannedBuffer(BufferKind.ARENA, 64, first=7, last=8)
    assert assign_offsets([read, write, later]) == 192


def test_what_nobody_uses_takes_no_room() -> None:
    assert assign_offsets([PlannedBuffer(BufferKind.ARENA, 64)]) == 0


def test_a_result_takes_over_what_ends_where_it_begins() -> None:
    old, new = (
        PlannedBuffer(BufferKind.ARENA, 64, first=0, last=3),
        PlannedBuffer(BufferKind.ARENA, 64, first=3, last=5),
    )
    reuse_operands([(3, old, new)])
    assert new.reused_buffer is old


def test_a_result_of_branches_keeps_its_bytes_through_all_of_them() -> None:
    result = PlannedBuffer(BufferKind.ARENA, 64, first=1, last=9)
    earlier = PlannedBuffer(BufferKind.ARENA, 64, first=2, last=3)
    old = PlannedBuffer(BufferKind.ARENA, 64, first=5, last=6)
    assert reuse_operands([(6, old, result)]) == []
    assert assign_offsets([result, earlier, old]) == 128
    assert earlier.offset != result.offset != old.offset
