"""Readable text of byte counts."""

import pytest

from shardir.display.byte_sizes import show_bytes


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (4096, "4.0 KiB"),
        (1 << 24, "16.0 MiB"),
        (3 << 29, "1.5 GiB"),
        (1 << 42, "4.0 TiB"),
        (5 << 60, "5120.0 PiB"),
        (10**400, "more than 1073741824.0 PiB"),
    ],
)
def test_byte_counts_have_readable_units(count: int, text: str) -> None:
    assert show_bytes(count) == text
