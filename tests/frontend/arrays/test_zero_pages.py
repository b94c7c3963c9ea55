"""Lazily zeroed pages read as zeros, whatever happens to their memory later."""

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.backends.cpu.threads.memory_mapping import CAN_RESET_PAGES
from shardir.frontend.arrays import zero_pages
from shardir.frontend.arrays.zero_pages import allocate_zeros
from tests.call_count import count_calls
from tests.frontend.dispatch.native_call_samples import insert_every_call as insert_every_call

SHAPES = ((1 << 14,), (300, 1000), (3, 1 << 20))
step = sd.jit(lambda x, y: x + y, donate_argnums=0)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_zeros_stay_zeros_after_donation(shape: tuple[int, ...]) -> None:
    for number in range(4):
        state = snp.zeros(shape)
        for _ in range(3):
            state = step(state, number)
        np.testing.assert_array_equal(state, np.full(shape, 3 * number))
        del state
        assert not np.asarray(snp.empty(shape)).any()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_zeros_stay_zeros_after_another_library_wrote_into_them(shape: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    for kind in range(3):
        for _ in range(3):
            zeros = snp.zeros(shape)
            given = (zeros, zeros.reshape(-1), zeros[: shape[0] // 2 + 1])[kind]
            del zeros
            torch.from_dlpack(given).fill_(5)
            del given
            assert not np.asarray(snp.zeros(shape)).any()


@pytest.mark.skipif(not CAN_RESET_PAGES, reason="there are blocks of zeros on Linux alone")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_repeated_calls_of_zeros_run_no_python_code(shape: tuple[int, ...]) -> None:
    like = snp.ones(shape, np.int32)
    nothing = count_calls(lambda: None)
    for _ in range(3):
        made = [snp.zeros(shape), snp.empty(shape, bool), snp.zeros_like(like)]
    assert count_calls(lambda: snp.zeros(shape)) == nothing
    assert count_calls(lambda: snp.empty(shape, bool)) == nothing
    assert count_calls(lambda: snp.zeros_like(like)) == nothing
    assert [each.dtype for each in made] == [np.float32, np.bool_, np.int32]
    for each in made:
        np.testing.assert_array_equal(each, np.zeros(shape))


def test_without_the_cpu_backend_there_are_no_zeroed_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    if CAN_RESET_PAGES:
        assert allocate_zeros((1 << 14,), "f32") is not None
    monkeypatch.setattr(zero_pages, "is_available", lambda: False)
    assert allocate_zeros((1 << 14,), "f32") is None


def test_live_arrays_have_separate_memory() -> None:
    made = [snp.zeros(1 << 15) for _ in range(5)]
    sums = [step(each, k) for k, each in enumerate(made)]
    for k, each in enumerate(sums):
        np.testing.assert_array_equal(each, np.full(1 << 15, k))
