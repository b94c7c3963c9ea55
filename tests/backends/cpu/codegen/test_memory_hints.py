"""What goes past the caches: where much is moved, and results are a good part of it."""

from dataclasses import replace

import pytest

from shardir.backends.cpu.codegen import memory_hints
from shardir.backends.cpu.codegen.target import host_machine


@pytest.mark.parametrize(
    ("written", "read", "goes"),
    [(512, 512, True), (512, 511, False), (1024, 0, True), (128, 4096, True), (127, 4096, False)],
)
def test_results_of_much_that_is_moved(written: int, read: int, goes: bool) -> None:
    machine = replace(host_machine(), shared_cache_bytes=1024)
    assert memory_hints.should_stream_stores(written, read, machine) == goes


def test_the_shared_cache_is_of_a_size_that_a_process_may_count_on() -> None:
    machine = host_machine()
    assert 1 << 20 <= machine.shared_cache_bytes <= 64 << 20
