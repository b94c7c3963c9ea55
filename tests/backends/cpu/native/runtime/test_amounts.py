"""Sizes as people read them."""

import pytest

from shardir.backends.cpu.native.runtime.amounts import in_units

MIB = 1 << 20


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 bytes"), (1000, "1000 bytes"), (2048, "2 KiB"), (1536 * MIB, "1.5 GiB")],
)
def test_sizes_are_written_for_people(nbytes: int, text: str) -> None:
    assert in_units(nbytes) == text
