"""Non-temporal stores: used for large data of which the results are a sufficient part."""

from dataclasses import replace

import pytest

from shardir.backends.cpu.codegen import memory_hints
from shardir.backends.cpu.codegen.target import host_machine


@pytest.mark.parametrize(
    ("written", "read", "streams"),
    [(512, 512, True), (512, 511, False), (1024, 0, True), (128, 4096, True), (127, 4096, False)],
)
def test_large_results_use_streaming_stores(written: int, read: int, streams: bool) -> None:
    machine = replace(host_machine(), shared_cache_bytes=1024)
    assert memory_hints.should_stream_stores(written, read, machine) == streams


def test_the_shared_cache_size_has_plausible_limits() -> None:
    machine = host_machine()
    assert 1 << 20 <= machine.shared_cache_bytes <= 64 << 20
