"""Buffers that are alive together never share bytes of the arena, others do."""

from hypothesis import given, strategies as st

from shardir.backends.cpu.native.schedule.memory import (
    ALIGNMENT,
    Buffer,
    Kind,
    aligned,
    arrange,
    take_over,
)

LIVES = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 20), st.integers(0, 8)), max_size=30)


@given(LIVES)
def test_what_is_alive_together_lies_apart(lives: list[tuple[int, int, int]]) -> None:
    buffers = [
        Buffer(Kind.ARENA, size, first=first, last=first + length) for size, first, length in lives
    ]
    total = arrange(buffers)
    for i, one in enumerate(buffers):
        assert one.offset % ALIGNMENT == 0
        assert one.offset + aligned(one.nbytes) <= total or not one.nbytes
        for other in buffers[:i]:
            together = one.first <= other.last and other.first <= one.last
            apart = (
                one.offset + one.nbytes <= other.offset or other.offset + other.nbytes <= one.offset
            )
            assert apart or not together


def test_a_chain_needs_two_places() -> None:
    chain = [Buffer(Kind.ARENA, 1024, first=i, last=i + 1) for i in range(10)]
    assert arrange(chain) == 2048


def test_partners_live_equally_long() -> None:
    read = Buffer(Kind.ARENA, 64, first=0, last=9)
    write = Buffer(Kind.ARENA, 64, first=0, last=5, partner=read)
    later = Buffer(Kind.ARENA, 64, first=7, last=8)
    assert arrange([read, write, later]) == 192


def test_what_nobody_uses_takes_no_room() -> None:
    assert arrange([Buffer(Kind.ARENA, 64)]) == 0


def test_a_result_takes_over_what_ends_where_it_begins() -> None:
    old, new = Buffer(Kind.ARENA, 64, first=0, last=3), Buffer(Kind.ARENA, 64, first=3, last=5)
    take_over([(3, old, new)])
    assert new.over is old


def test_a_result_of_branches_keeps_its_bytes_through_all_of_them() -> None:
    result = Buffer(Kind.ARENA, 64, first=1, last=9)
    earlier = Buffer(Kind.ARENA, 64, first=2, last=3)
    old = Buffer(Kind.ARENA, 64, first=5, last=6)
    assert take_over([(6, old, result)]) == []
    assert arrange([result, earlier, old]) == 128
    assert earlier.offset != result.offset != old.offset
