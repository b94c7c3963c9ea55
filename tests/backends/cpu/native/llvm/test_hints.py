"""What goes past the caches: where much is moved, and results are a good part of it."""

import pytest

from shardir.backends.cpu.native.llvm import hints
from shardir.backends.cpu.native.llvm.target import host, shared_cache


@pytest.mark.parametrize(
    ("written", "read", "goes"),
    [(512, 512, True), (512, 511, False), (1024, 0, True), (128, 4096, True), (127, 4096, False)],
)
def test_results_of_much_that_is_moved(
    written: int, read: int, goes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hints, "shared_cache", lambda: 1024)
    assert hints.goes_past_caches(written, read) == goes


def test_the_shared_cache_is_of_a_size_that_a_process_may_count_on() -> None:
    assert 1 << 20 <= shared_cache() <= 64 << 20
    assert shared_cache() >= max(host().caches)
