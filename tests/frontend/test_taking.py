"""Numbers of others: copied where somebody may write into them, taken as they are otherwise."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardir as sd
from shardir import numpy as snp
from shardir.frontend.errors import ArgumentError
from shardir.frontend.taking import is_lasting

LARGE = (64, 1024)


def address(x: Any) -> int:
    return int(np.asarray(x).__array_interface__["data"][0])


@pytest.mark.parametrize("shape", [(3,), LARGE])
@pytest.mark.parametrize("enter", [snp.asarray, sd.device_put])
def test_what_is_written_later_does_not_show(shape: tuple[int, ...], enter: Any) -> None:
    x = np.zeros(shape, np.float32)
    array = enter(x)
    x[...] = 1
    assert not np.asarray(array).any()


def test_a_view_that_cannot_be_written_into_is_copied_too() -> None:
    x = np.zeros(LARGE, np.float32)
    view = x.view()
    view.flags.writeable = False
    array = snp.asarray(view)
    x[...] = 1
    assert not np.asarray(array).any()
    assert not is_lasting(view)


def test_what_nobody_can_write_into_is_not_copied() -> None:
    x = np.frombuffer(bytes(range(256)) * 64, np.float32)
    assert address(snp.asarray(x)) == address(x)


def test_numbers_leave_and_come_back_without_a_copy() -> None:
    array = snp.asarray(np.ones(LARGE, np.float32)) + 1
    numbers = np.asarray(array)
    assert address(np.asarray(array)) == address(numbers)
    assert address(snp.asarray(numbers)) == address(numbers)
    assert address(snp.asarray(numbers[3:])) == address(numbers[3:])
    assert address(sd.device_put(numbers)) == address(numbers)


@pytest.mark.parametrize("shape", [(3,), LARGE])
def test_numbers_that_left_can_not_be_written_into(shape: tuple[int, ...]) -> None:
    numbers = np.asarray(snp.ones(shape) + 1)
    with pytest.raises(ValueError, match="read-only"):
        numbers[0] = 5


def test_arrays_of_other_libraries_are_shared() -> None:
    x = jnp.arange(5000.0)
    array = snp.from_dlpack(x)
    assert address(array) == address(x)
    assert jax.dlpack.from_dlpack(array).tolist() == x.tolist()
    assert address(np.from_dlpack(array)) == address(x)


def test_memory_that_may_change_is_shared_only_when_asked_for() -> None:
    x = np.zeros(5000, np.float32)
    assert address(snp.from_dlpack(x)) != address(x)
    assert address(snp.from_dlpack(x, copy=True)) != address(x)
    assert address(snp.from_dlpack(x, copy=False)) == address(x)


def test_what_cannot_be_shared() -> None:
    with pytest.raises(ArgumentError) as wide:
        snp.from_dlpack(np.zeros(3), copy=False)
    assert str(wide.value).startswith(
        "the array given to from_dlpack has elements of type float64, which become float32, "
        "which copy=False does not allow; leave copy away"
    )
    with pytest.raises(ArgumentError) as turned:
        snp.from_dlpack(np.zeros((3, 4), np.float32).T, copy=False)
    assert "does not lie in row-major order" in str(turned.value)
    with pytest.raises(ArgumentError, match="NumPy has no DLPack for bf16"):
        np.from_dlpack(snp.zeros(3, "bfloat16"))


def test_a_program_does_not_write_into_what_is_shared() -> None:
    x = np.zeros(LARGE, np.float32)
    array = snp.from_dlpack(x, copy=False)
    more = sd.jit(lambda x: x + 1, donate_argnums=0)(array)
    assert np.asarray(more).all()
    assert not x.any()
