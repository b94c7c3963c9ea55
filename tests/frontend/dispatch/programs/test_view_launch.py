"""Results that are views into the memory of arguments."""

from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.backends.storage import Storage
from shardir.frontend.errors import DeletedArrayError

NUMBERS = np.arange(24 * 64, dtype=np.float32).reshape(24, 64)


def memory(x: Any) -> Storage:
    assert isinstance(x.buffers, Storage)
    return x.buffers


def owner(x: Any) -> Any:
    """Return the object that keeps the memory of an array alive, through any number of views."""
    found = memory(x).owner
    return found.owner if isinstance(found, Storage) else found


@pytest.mark.parametrize(
    ("index", "begin"),
    [
        (slice(3, 9), 3 * 64),
        (5, 5 * 64),
        ((5, slice(8, None)), 5 * 64 + 8),
        ((slice(4, 5), slice(2, 40)), 4 * 64 + 2),
        ((slice(None), slice(0, 64)), 0),
        (-1, 23 * 64),
        ((slice(None, None, 2),), None),
        ((slice(None), slice(1, 64)), None),
        ((slice(None, None, -1),), None),
        ((slice(2, 8), 3), None),
    ],
)
def test_a_contiguous_part_is_a_view(index: Any, begin: int | None) -> None:
    small = NUMBERS[:12] if begin is not None and begin < 12 * 64 else NUMBERS
    x = snp.asarray(small) + 0
    for _ in range(3):
        y = x[index]
        np.testing.assert_array_equal(y, small[index])
        np.testing.assert_array_equal(y + 1, small[index] + 1)
    far = memory(y).address - memory(x).address
    if begin is None:
        assert owner(y) is not owner(x)
    elif 8 * y.nbytes >= x.nbytes or x.nbytes <= 4096:
        assert far == 4 * begin
        assert owner(y) is owner(x)
    else:
        assert owner(y) is not owner(x)


def test_a_small_part_does_not_keep_a_large_array_alive() -> None:
    x = snp.asarray(NUMBERS) + 0
    assert owner(x[:3]) is owner(x)
    assert owner(x[:2]) is not owner(x)
    for parts in (snp.split(x, 12), sd.jit(lambda x: snp.split(x, 12))(x)):
        assert all(owner(part) is owner(x) for part in parts)
        np.testing.assert_array_equal(np.concatenate(parts), NUMBERS)


def test_views_of_views() -> None:
    x = snp.asarray(NUMBERS) + 0
    y = x[4:20][3:].reshape(-1)[10:]
    assert memory(y).address - memory(x).address == 4 * (7 * 64 + 10)
    del x
    np.testing.assert_array_equal(y, NUMBERS[7:20].reshape(-1)[10:])


def test_one_program_returns_views_and_computed_results() -> None:
    f = sd.jit(lambda x: (x[2:12], x * 2))
    for _ in range(3):
        part, twice = f(snp.asarray(NUMBERS))
        np.testing.assert_array_equal(part, NUMBERS[2:12])
        np.testing.assert_array_equal(twice, NUMBERS * 2)


@pytest.mark.parametrize("whole_first", [True, False])
def test_donation_does_not_overwrite_memory_of_views(whole_first: bool) -> None:
    double = sd.jit(lambda x: x * 2, donate_argnums=0)
    for cut in (slice(0, 16), slice(8, 24)):
        x = snp.asarray(NUMBERS) + 0
        y = x[cut]
        if whole_first:
            np.testing.assert_array_equal(double(x), NUMBERS * 2)
            np.testing.assert_array_equal(y, NUMBERS[cut])
        else:
            del x
            np.testing.assert_array_equal(double(y), NUMBERS[cut] * 2)


def test_a_view_of_a_donated_argument_is_no_copy() -> None:
    same = sd.jit(lambda x: x.reshape(-1).reshape(24, 64), donate_argnums=0)
    for _ in range(3):
        x = snp.asarray(NUMBERS) + 0
        begin = memory(x).address
        y = same(x)
        assert x.is_deleted()
        assert memory(y).address == begin
        np.testing.assert_array_equal(y, NUMBERS)


def test_a_view_of_a_deleted_array_is_an_error() -> None:
    x = snp.asarray(NUMBERS) + 0
    y = x[2:20]
    x.delete()
    with pytest.raises(DeletedArrayError):
        x[2:20]
    np.testing.assert_array_equal(y, NUMBERS[2:20])


def test_numpy_arguments_are_copied() -> None:
    given = NUMBERS.copy()
    f = sd.jit(lambda x: x[2:20])
    for _ in range(3):
        made = f(given)
    given[:] = 0
    np.testing.assert_array_equal(made, NUMBERS[2:20])


def test_parts_and_reshapes_of_sharded_arrays_are_views() -> None:
    mesh = sd.make_mesh((4,), ("a",))
    x = sd.device_put(NUMBERS, sd.NamedSharding(mesh, sd.P("a")))
    uneven = sd.jit(lambda x: x[2:20], uneven="pad")
    for _ in range(2):
        for part in (x[4:20], uneven(x)):
            begin = 20 - len(part)
            np.testing.assert_array_equal(part, NUMBERS[begin:20])
            np.testing.assert_array_equal(part + 1, NUMBERS[begin:20] + 1)
            assert memory(part).address - memory(x).address == 4 * begin * 64
            shards = [shard.data for shard in part.addressable_shards]
            np.testing.assert_array_equal(np.concatenate(shards), NUMBERS[begin:20])
        np.testing.assert_array_equal(x.reshape(48, 32), NUMBERS.reshape(48, 32))


def test_a_dimension_of_one_element_joins_no_parts() -> None:
    x = np.arange(12).reshape(3, 1, 4)
    cut = sd.jit(lambda x: x[:, :, :2])
    for _ in range(2):
        np.testing.assert_array_equal(cut(snp.asarray(x)), x[:, :, :2])


def test_effects_run_beside_views() -> None:
    seen: list[str] = []

    @sd.jit
    def view(x: sd.Array) -> sd.Array:
        sd.debug.callback(lambda x: seen.append(f"view of {x}"), x[0])
        return x[1:]

    @sd.jit
    def loop(x: sd.Array) -> sd.Array:
        def step(i: sd.Array, x: sd.Array) -> sd.Array:
            sd.debug.callback(lambda i: seen.append(f"step {i}"), i)
            return x

        sd.lax.fori_loop(0, 2, step, x)
        return x[1:]

    @sd.jit
    def nothing(x: sd.Array) -> None:
        sd.debug.callback(lambda x: seen.append(f"no result of {x}"), x[0])

    x = snp.arange(3)
    for _ in range(2):
        np.testing.assert_array_equal(view(x), [1, 2])
        np.testing.assert_array_equal(loop(x), [1, 2])
        nothing(x)
    assert seen == ["view of 0", "step 0", "step 1", "no result of 0"] * 2
