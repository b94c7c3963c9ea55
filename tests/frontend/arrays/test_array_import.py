"""Import of arrays: writable memory is copied, read-only memory is shared."""

import array
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardir as sd
from shardir import numpy as snp
from shardir.frontend.arrays import array_import
from shardir.frontend.arrays.array_import import is_immutable_memory
from shardir.frontend.errors import ArgumentError, NotAnArrayError

LARGE = (64, 1024)


def address(x: Any) -> int:
    return int(np.asarray(x).__array_interface__["data"][0])


def test_a_requested_copy_of_immutable_memory_is_a_copy() -> None:
    numbers = np.frombuffer(bytes(4 * 64), np.float32)
    addresses = {copy: address(snp.from_dlpack(numbers, copy=copy)) for copy in (None, False, True)}
    assert addresses[None] == addresses[False] == address(numbers) != addresses[True]


def test_without_the_cpu_backend_numpy_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(*_: Any) -> Any:
        raise AssertionError("the CPU backend is not available")

    monkeypatch.setattr(array_import, "is_available", lambda: False)
    monkeypatch.setattr("shardir.backends.cpu.threads.memory.copy_to_pool", unavailable)
    x = np.arange(8192, dtype=np.float64)
    np.testing.assert_array_equal(array_import.copy_numpy(x, np.dtype("f")).array, x)


@pytest.mark.parametrize("shape", [(3,), LARGE])
@pytest.mark.parametrize("enter", [snp.asarray, sd.device_put])
def test_later_writes_do_not_change_the_array(shape: tuple[int, ...], enter: Any) -> None:
    x = np.zeros(shape, np.float32)
    array = enter(x)
    x[...] = 1
    assert not np.asarray(array).any()


def test_a_read_only_view_of_writable_memory_is_copied() -> None:
    x = np.zeros(LARGE, np.float32)
    view = x.view()
    view.flags.writeable = False
    array = snp.asarray(view)
    x[...] = 1
    assert not np.asarray(array).any()
    assert not is_immutable_memory(view)


def test_read_only_memory_is_shared() -> None:
    x = np.frombuffer(bytes(range(256)) * 64, np.float32)
    assert address(snp.asarray(x)) == address(x)


def test_export_and_import_need_no_copy() -> None:
    array = snp.asarray(np.ones(LARGE, np.float32)) + 1
    numbers = np.asarray(array)
    assert address(np.asarray(array)) == address(numbers)
    assert address(snp.asarray(numbers)) == address(numbers)
    assert address(snp.asarray(numbers[3:])) == address(numbers[3:])
    assert address(sd.device_put(numbers)) == address(numbers)


@pytest.mark.parametrize("shape", [(3,), LARGE])
def test_exported_arrays_are_read_only(shape: tuple[int, ...]) -> None:
    numbers = np.asarray(snp.ones(shape) + 1)
    with pytest.raises(ValueError, match="read-only"):
        numbers[0] = 5


def test_arrays_of_other_libraries_are_shared() -> None:
    x = jnp.arange(5000.0)
    array = snp.from_dlpack(x)
    assert address(array) == address(x)
    assert jax.dlpack.from_dlpack(array).tolist() == x.tolist()
    assert address(np.from_dlpack(array)) == address(x)


def test_writable_memory_is_shared_only_on_request() -> None:
    x = np.zeros(5000, np.float32)
    assert address(snp.from_dlpack(x)) != address(x)
    assert address(snp.from_dlpack(x, copy=True)) != address(x)
    assert address(snp.from_dlpack(x, copy=False)) == address(x)


def test_arrays_that_cannot_be_shared_are_errors() -> None:
    with pytest.raises(ArgumentError) as wide:
        snp.from_dlpack(np.zeros(3), copy=False)
    assert str(wide.value).startswith(
        "the array given to from_dlpack has elements of type float64, which become float32, which "
        "copy=False does not allow; omit copy"
    )
    with pytest.raises(ArgumentError) as turned:
        snp.from_dlpack(np.zeros((3, 4), np.float32).T, copy=False)
    assert "is not in row-major order" in str(turned.value)
    with pytest.raises(NotAnArrayError) as foreign:
        snp.from_dlpack([1, 2])
    assert str(foreign.value).startswith(
        "from_dlpack takes an array that has __dlpack__, not one of type list"
    )
    with pytest.raises(NotAnArrayError) as unknown:
        snp.from_dlpack(jnp.zeros(3, "int4"))
    assert str(unknown.value).startswith("from_dlpack cannot take this array of type ArrayImpl: ")


class DLPackExporter:
    """An array of another library, which exports a given capsule."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def test_dlpack_must_return_an_unused_capsule() -> None:
    with pytest.raises(NotAnArrayError) as number:
        snp.from_dlpack(DLPackExporter(5))
    assert str(number.value).startswith(
        "from_dlpack cannot take this array of type DLPackExporter: __dlpack__ returned an object "
        "of type int, which is not an unconsumed capsule"
    )
    once = DLPackExporter(snp.arange(3).__dlpack__(max_version=(1, 0)))
    assert snp.from_dlpack(once).tolist() == [0, 1, 2]
    with pytest.raises(NotAnArrayError) as taken:
        snp.from_dlpack(once)
    assert "an object named used_dltensor_versioned, which is not an unconsumed capsule" in str(
        taken.value
    )


def test_dlpack_copies_a_read_only_view_of_writable_memory() -> None:
    x = np.zeros(LARGE, np.float32)
    view = x.view()
    view.flags.writeable = False
    array = snp.from_dlpack(view)
    x[...] = 1
    assert not np.asarray(array).any()
    lasting = np.frombuffer(bytes(range(256)) * 64, np.float32)
    assert address(snp.from_dlpack(lasting)) == address(lasting)


def test_consumers_without_read_only_support_get_a_copy_or_an_error() -> None:
    array = snp.arange(3.0)
    assert "dltensor_versioned" in str(array.__dlpack__(max_version=(1, 0), copy=False))
    assert '"dltensor"' in str(array.__dlpack__(copy=True))
    with pytest.raises(BufferError) as old:
        array.__dlpack__(copy=False)
    assert str(old.value) == (
        "an array is exported without a copy only to a consumer that supports the read-only flag, "
        "max_version=(1, 0), not None; omit copy=False"
    )
    for version in (None, (1, 0)):
        with pytest.raises(BufferError):
            array.__dlpack__(max_version=version, dl_device=(2, 0))


@pytest.mark.parametrize("shape", [(), (0,), (3,), LARGE])
@pytest.mark.parametrize(
    "make",
    [
        sd.jit(lambda x: x),
        sd.jit(lambda x: (x, snp.reshape(x, -1))),
        snp.asarray,
        lambda x: snp.asarray(x) + 1,
        lambda x: snp.asarray(x)[...],
    ],
    ids=["whole", "twice", "entered", "computed", "taken"],
)
def test_exported_arrays_cannot_be_made_writable(shape: tuple[int, ...], make: Any) -> None:
    for result in sd.tree.leaves(make(np.zeros(shape, np.float32))):
        numbers = np.asarray(result)
        with pytest.raises(ValueError, match="cannot set WRITEABLE"):
            numbers.flags.writeable = True


def test_bf16_is_imported_and_exported_without_a_copy() -> None:
    x = jnp.arange(5000).astype("bfloat16")
    array = snp.from_dlpack(x)
    assert array.dtype == "bfloat16"
    assert address(array) == x.unsafe_buffer_pointer()
    again = jax.dlpack.from_dlpack(array)
    assert again.dtype == "bfloat16"
    assert again.tolist() == x.tolist()
    assert snp.from_dlpack(x.reshape(50, 100).T).tolist() == x.reshape(50, 100).T.tolist()


class ArrayInterfaceExporter:
    """An object with NumPy's `__array_interface__`."""

    def __init__(self, numbers: Any) -> None:
        self.numbers, self.__array_interface__ = numbers, numbers.__array_interface__


def test_the_array_interface_is_imported() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    buffer: Any = x
    exporters: list[Any] = [ArrayInterfaceExporter(x), memoryview(buffer)]
    for given in exporters:
        for made in (snp.asarray(given), sd.jit(lambda given=given: snp.asarray(given))()):
            assert made.dtype == np.float32
            assert made.tolist() == x.tolist()
    assert snp.array(memoryview(buffer)[::-1]).tolist() == x[::-1].tolist()
    assert snp.asarray(array.array("h", [1, 2])).dtype == np.int16


def test_the_error_of_another_byte_order_states_the_conversion() -> None:
    with pytest.raises(NotAnArrayError) as error:
        snp.asarray(np.arange(2, dtype=">f4"))
    assert "; x.astype('float32') has its bytes in this machine's order" in str(error.value)


def test_a_program_does_not_write_into_shared_memory() -> None:
    x = np.zeros(LARGE, np.float32)
    array = snp.from_dlpack(x, copy=False)
    more = sd.jit(lambda x: x + 1, donate_argnums=0)(array)
    assert np.asarray(more).all()
    assert not x.any()


@pytest.mark.parametrize("shape", [(), (3,), LARGE])
def test_the_first_array_of_any_size_prepares_the_backend(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]
) -> None:
    prepared: list[str] = []
    array_import._prepare_cpu_backend.cache_clear()
    monkeypatch.setattr(array_import, "prepare_backend", prepared.append)
    sd.device_put(np.zeros(shape, np.float32))
    assert prepared == ["cpu"]
