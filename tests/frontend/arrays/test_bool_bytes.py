"""NumPy bools may have any byte as value: every byte except 0 is true, as in NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.errors import ShardirError

pytestmark = pytest.mark.sample(5)

SIZES = 0, 5, 200, 5_000, 100_000, 6_000_000
WAYS: dict[str, Callable[[npt.NDArray[np.uint8]], Any]] = {
    "numpy": lambda octets: octets.view(bool),
    "every other": lambda octets: np.repeat(octets, 2).view(bool)[::2],
    "bytes": lambda octets: np.frombuffer(octets.tobytes(), bool),
    "frombuffer": lambda octets: snp.frombuffer(octets.tobytes() or b"\0", bool)[: octets.size],
    "asarray": lambda octets: snp.asarray(octets.view(bool)),
    "device_put": lambda octets: sd.device_put(octets.view(bool)),
    "from_dlpack": lambda octets: snp.from_dlpack(octets.view(bool)),
    "view": lambda octets: snp.asarray(octets).view(bool),
}


@sd.jit
def used(x: Any) -> Any:
    return snp.sum(x), ~x, snp.where(x, 1, 2), x.reshape(1, -1)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("way", WAYS)
def test_every_byte_except_0_is_true(way: str, size: int) -> None:
    octets = np.random.default_rng(0).integers(0, 4, size).astype(np.uint8)
    true = octets != 0
    for _ in range(4 if size < 1_000_000 else 2):  # These calls also enter the native call cache.
        x = WAYS[way](octets)
        assert int(snp.sum(x)) == true.sum()
        np.testing.assert_array_equal(snp.logical_not(x), ~true)
        np.testing.assert_array_equal(snp.flatnonzero(x), np.flatnonzero(true))
        np.testing.assert_array_equal(snp.sort(x), np.sort(true))
        shown = np.asarray(snp.ravel(x))
        np.testing.assert_array_equal(shown.view(np.uint8), true)
        total, negated, chosen, reshaped = used(x)
        assert int(total) == true.sum()
        np.testing.assert_array_equal(negated, ~true)
        np.testing.assert_array_equal(chosen, np.where(true, 1, 2))
        np.testing.assert_array_equal(np.asarray(reshaped).view(np.uint8)[0], true)


def test_memory_with_bytes_other_than_0_and_1_is_not_shared() -> None:
    octets = np.array([0, 1, 2], np.uint8)
    octets.flags.writeable = False
    with pytest.raises(ShardirError) as raised:
        snp.from_dlpack(octets.view(bool), copy=False)
    assert str(raised.value).partition("\n")[0] == (
        "the array given to from_dlpack has boolean bytes other than 0 and 1, which copy=False "
        "does not allow; omit copy"
    )
