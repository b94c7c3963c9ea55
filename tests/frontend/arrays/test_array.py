"""Arrays have one buffer per distinct shard, and behave as NumPy arrays on the host."""

import copy
import pickle
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shardir.numpy as snp
from shardir import random
from shardir.backends.native import native
from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.arrays.array import Array, from_numpy
from shardir.frontend.arrays.device_transfer import device_put
from shardir.frontend.arrays.signature import ShapeDtypeStruct, signature_of
from shardir.frontend.config import enable_x64
from shardir.frontend.dispatch.jit import jit
from shardir.frontend.errors import (
    ArgumentError,
    DeletedArrayError,
    IndexingError,
    ShapeError,
    TracedValueError,
)
from shardir.frontend.shardings.devices import devices
from shardir.frontend.shardings.mesh import make_mesh
from shardir.frontend.shardings.partition_spec import P
from shardir.frontend.shardings.sharding import NamedSharding, SingleDeviceSharding
from shardir.frontend.tracing.promotion import KEY
from shardir.ir.types import TensorType

MESH = make_mesh((4, 2), ("a", "b"))
NUMBERS = np.arange(32, dtype=np.float32).reshape(8, 4)


def make_sharded(*spec: Any) -> Array:
    array = device_put(NUMBERS, NamedSharding(MESH, P(*spec)))
    assert isinstance(array, Array)
    return array


def test_an_array_has_one_global_shape() -> None:
    x = make_sharded("a", "b")
    assert (x.shape, x.ndim, x.size, x.nbytes) == ((8, 4), 2, 32, 128)
    assert x.dtype == np.float32
    assert x.sharding == NamedSharding(MESH, P("a", "b"))
    assert x.devices() == set(devices())
    assert x.device == x.sharding
    assert (x.committed, x.weak_type, x.is_fully_replicated) == (True, False, False)
    assert len(x) == 8


def test_each_device_has_its_shard() -> None:
    shards = make_sharded("a", "b").addressable_shards
    assert [s.device.id for s in shards] == list(range(8))
    assert shards[3].index == (slice(2, 4), slice(2, 4))
    assert [s.replica_id for s in shards] == [0] * 8
    for shard in shards:
        assert shard.data.sharding == SingleDeviceSharding(shard.device)
        np.testing.assert_array_equal(shard.data, NUMBERS[shard.index])
    np.testing.assert_array_equal(make_sharded("a", "b").addressable_data(3), NUMBERS[2:4, 2:4])


@pytest.mark.parametrize("index", [8, -9, "0"])
def test_a_shard_that_the_process_does_not_have_is_an_error(index: Any) -> None:
    with pytest.raises(IndexingError) as caught:
        make_sharded("a", "b").addressable_data(index)
    assert str(caught.value).splitlines()[0] == (
        "this process has 8 shards of the array of type f32[8, 4], and none at "
        f"{index!r}; addressable_shards lists them"
    )


def test_a_format_of_numbers_is_an_error_for_an_array() -> None:
    assert f"{make_sharded()[0, 0]:.1f} {make_sharded()[0]!s:>14}" == "0.0  [0. 1. 2. 3.]"
    with pytest.raises(ArgumentError) as caught:
        format(make_sharded(), ".1f")
    assert str(caught.value).splitlines()[0] == (
        "an array of type f32[8, 4] has no format '.1f', which is one of numbers; format its "
        "elements, or print it under numpy.printoptions"
    )


def test_devices_with_equal_shards_share_a_buffer() -> None:
    x = make_sharded(None, "b")
    assert [s.replica_id for s in x.global_shards] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert len({id(part) for part in x.device_shards}) == 2
    assert len({id(part) for part in make_sharded().device_shards}) == 1
    assert make_sharded().is_fully_replicated


@pytest.mark.parametrize("spec", [(), ("a",), (None, "b"), ("b", "a"), (("a", "b"),)])
def test_the_global_array_is_assembled(spec: tuple[Any, ...]) -> None:
    x = make_sharded(*spec)
    np.testing.assert_array_equal(np.asarray(x), NUMBERS)
    assert x.tolist() == NUMBERS.tolist()
    assert np.asarray(x, np.float64).dtype == np.float64


def test_arrays_are_read_only() -> None:
    numbers = NUMBERS.copy()
    x = from_numpy(numbers)
    numbers[:] = 0
    np.testing.assert_array_equal(x, NUMBERS)
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(x)[0, 0] = 1
    mine = np.array(x)
    mine[0, 0] = 5
    assert np.asarray(x)[0, 0] == 0


def test_64_bit_dtypes_are_narrowed_unless_enabled() -> None:
    assert from_numpy(np.arange(3.0)).dtype == np.float32
    assert from_numpy(np.arange(3)).dtype == np.int32
    with enable_x64():
        assert from_numpy(np.arange(3.0)).dtype == np.float64


def test_an_array_of_one_element_converts_to_a_number() -> None:
    x = from_numpy(np.float32(2.5))
    assert (float(x), int(x), bool(x), complex(x)) == (2.5, 2, True, 2.5 + 0j)
    assert x.item() == 2.5
    assert f"{x:.3f} {x}" == "2.500 2.5"
    assert [10, 20][from_numpy(1)] == 20
    assert make_sharded("a").item(1, 2) == 6


def test_an_array_of_many_elements_does_not_convert_to_a_number() -> None:
    x = from_numpy(NUMBERS)
    for use in (float, bool, int):
        with pytest.raises((TypeError, ValueError)):
            use(x)
    with pytest.raises(TypeError, match="unhashable"):
        hash(x)
    with pytest.raises(TypeError, match="rank 0"):
        len(from_numpy(1.0))
    with pytest.raises(TypeError, match="rank 0"):
        iter(from_numpy(1.0))


def test_iteration_yields_rows() -> None:
    first, *_, last = from_numpy(NUMBERS)
    assert isinstance(last, Array)
    np.testing.assert_array_equal(last, NUMBERS[-1])
    np.testing.assert_array_equal(first, NUMBERS[0])


def test_arrays_print_as_numpy_prints_them() -> None:
    assert repr(from_numpy(np.array([1, 2], np.float32))) == "Array([1., 2.], dtype=float32)"
    assert repr(from_numpy(3, weak=True)) == "Array(3, dtype=int32, weak_type=True)"
    assert repr(from_numpy(np.zeros((0, 2)))) == "Array([], shape=(0, 2), dtype=float32)"
    assert repr(from_numpy(np.array([[1, 2], [3, 4]], np.float32))) == (
        "Array([[1., 2.],\n       [3., 4.]], dtype=float32)"
    )
    assert str(make_sharded("a")) == str(NUMBERS)
    wide = from_numpy(np.ones(14, np.float32))
    assert repr(wide) == (f"Array([{', '.join(['1.'] * 14)}],\n      dtype=float32)")
    half = from_numpy(np.ones(1, ml_dtypes.bfloat16))
    assert repr(half) == "Array([1], dtype=bfloat16)"


def test_keys_do_not_convert_to_numbers() -> None:
    abstract = AbstractValue(TensorType((2,), "key"))
    words = np.array([1, (7 << 32) + 9], np.uint64)
    sharding = SingleDeviceSharding(devices()[0])
    keys = Array(signature_of(abstract, None), sharding, [words])
    assert keys.dtype == KEY
    assert repr(keys) == "Array((2,), dtype=key<fry>) overlaying:\n[[0 1]\n [7 9]]"
    with pytest.raises(TypeError, match="random keys are not numbers"):
        np.asarray(keys)


def test_a_deleted_array_is_an_error() -> None:
    x = make_sharded("a")
    x.delete()
    assert x.is_deleted()
    assert repr(x) == "Array(f32[8, 4] that has been deleted)"
    uses: list[Any] = [np.asarray, repr_of_numbers, Array.block_until_ready, Array.is_ready]
    for use in uses:
        with pytest.raises(DeletedArrayError, match=r"this array of type f32\[8, 4\] has been del"):
            use(x)


def repr_of_numbers(x: Array) -> str:
    return str(x)


def test_arrays_are_copied_and_pickled() -> None:
    x = make_sharded("a")
    assert copy.copy(x) is x
    assert copy.deepcopy({"x": x})["x"] is x
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(x)), NUMBERS)


def test_equal_signatures_are_one_object() -> None:
    assert make_sharded("a").signature is make_sharded("a").signature
    assert make_sharded("a").signature is not make_sharded("b").signature
    assert from_numpy(NUMBERS).signature is from_numpy(NUMBERS + 1).signature


def test_a_shape_dtype_struct_has_the_attributes_of_an_array() -> None:
    x = ShapeDtypeStruct((8, 4), np.float32, sharding=NamedSharding(MESH, P("a")))
    assert (x.shape, x.ndim, x.size) == ((8, 4), 2, 32)
    assert x.dtype == np.float32
    assert x.signature is make_sharded("a").signature
    assert x == ShapeDtypeStruct((8, 4), "float32", sharding=NamedSharding(MESH, P("a")))
    assert repr(ShapeDtypeStruct((2,), int)) == "ShapeDtypeStruct(shape=(2,), dtype=int32)"
    with pytest.raises(ShapeError, match=r"^shape \(-2,\) has a negative size"):
        ShapeDtypeStruct((-2,), int)


def test_the_spec_of_a_shape_dtype_struct_is_on_the_entered_mesh() -> None:
    x = ShapeDtypeStruct((8, 4), np.float32, sharding=P("a"))
    with MESH:
        assert x.sharding == NamedSharding(MESH, P("a"))
        assert x.update(shape=(4,)).sharding == NamedSharding(MESH, P("a"))
    assert x == ShapeDtypeStruct((8, 4), np.float32, sharding=P("a"))
    expected = "ShapeDtypeStruct(shape=(8, 4), dtype=float32, sharding=P('a',))"
    assert repr(x) == expected
    with pytest.raises(ArgumentError) as caught:
        _ = x.sharding
    assert str(caught.value).partition("\n")[0] == (
        "the sharding of a ShapeDtypeStruct has P('a',), which names no devices; write "
        "NamedSharding(mesh, P('a',)), or call it inside `with mesh:`"
    )


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (bool, ShapeError, "an array of shape (2,) has no single truth value; reduce it with .all"),
        (
            int,
            ArgumentError,
            "an array of shape (2,) cannot be converted to int; choose one element by an index",
        ),
        (float, ArgumentError, "an array of shape (2,) cannot be converted to float; choose"),
        (
            lambda x: int(x[0] * 1j),
            ArgumentError,
            "a complex number cannot be converted to int; take its .real",
        ),
        (
            lambda x: [0, 1][x[0]],
            ArgumentError,
            "an array of type f32[] is not an index; indices are",
        ),
        (lambda x: len(x[0]), ArgumentError, "an array of rank 0 has no len()"),
        (lambda x: list(x[0]), ArgumentError, "an array of rank 0 cannot be iterated over"),
    ],
)
def test_conversion_errors_state_the_reason(use: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        use(from_numpy(np.ones(2, np.float32)))
    assert str(caught.value).startswith(message)
    assert "test_array.py" in str(caught.value)


def test_type_attributes_need_no_elements() -> None:
    kind = jit(lambda x: x + 1.0)(np.float32(2.0)).aval
    assert kind == ShapeDtypeStruct((), np.float32)
    assert kind.update(shape=(2, 3)) == ShapeDtypeStruct((2, 3), np.float32)
    seen = []
    jit(lambda x: seen.append(x.aval))(1)
    assert seen == [ShapeDtypeStruct((), np.int32, weak_type=True)]


@pytest.mark.parametrize(
    "number",
    [
        np.float32(0.1), np.float32(-0.0), np.float32(np.inf), np.float16(0.1), np.int32(7),
        np.uint8(200), np.bool_(True), np.complex64(1 + 0.1j), ml_dtypes.bfloat16(0.1),
    ],
    ids=repr,
)  # fmt: skip
def test_scalar_arrays_are_formatted_as_numpy_scalars(number: Any) -> None:
    x = snp.asarray(number)
    for spec in ("", ".3f", ">20", "e", "d", "n"):
        try:
            expected = format(number, spec)
        except (TypeError, ValueError) as error:
            with pytest.raises(type(error)):
                format(x, spec)
        else:
            assert format(x, spec) == expected
    assert f"{snp.arange(2)}" == "[0 1]"


def test_methods_that_read_or_reorder_bytes() -> None:
    for dtype in ("uint8", "int16", "float32", "complex64", "bool"):
        x = np.arange(6).reshape(2, 3).astype(dtype)
        swapped = x.byteswap()
        assert np.asarray(snp.array(x).byteswap()).tobytes() == swapped.tobytes()
        assert snp.array(x).tobytes() == x.tobytes()
        assert snp.array(x).tobytes("F") == x.tobytes("F")
    with pytest.raises(ArgumentError, match="order 'K' is unknown; it is 'C', 'F' or 'A'"):
        snp.ones(2).tobytes("K")
    np.testing.assert_array_equal(snp.arange(4).compress([True, False, True, False]), [0, 2])


def test_astype_copies_only_if_the_type_changes_or_a_copy_is_requested() -> None:
    x = snp.arange(3)
    assert x.astype("int32") is x
    for copied in (x.astype("int32", copy=True), x.astype("float32")):
        copied.delete()
    assert not x.is_deleted()


def test_bytes_of_an_array_do_not_depend_on_the_tier() -> None:
    for x in (snp.arange(3), snp.arange(6.0).reshape(2, 3).T, snp.array(1.5), snp.zeros((0, 2))):
        assert bytes(x) == x.__bytes__() == np.asarray(x).tobytes()
    assert bytes(snp.array(3)) == bytes(3)
    with pytest.raises(
        TracedValueError, match=r"a traced f32\[2\] has no bytes while .* is traced"
    ):
        jit(lambda x: bytes(x))(snp.ones(2))
    with pytest.raises(BufferError, match="no elements of type bf16; read the array with np"):
        bytes(snp.ones(2, "bfloat16"))


@pytest.mark.skipif(
    sys.version_info < (3, 12) and native is None, reason="needs Python 3.12 or the native tier"
)
def test_an_array_is_a_read_only_buffer() -> None:
    x = snp.arange(6).reshape(2, 3)
    seen = memoryview(x)
    assert (seen.shape, seen.format, seen.readonly) == ((2, 3), "i", True)
    assert np.shares_memory(np.asarray(seen), np.asarray(x))
    x.delete()
    np.testing.assert_array_equal(np.asarray(seen), [[0, 1, 2], [3, 4, 5]])
    with pytest.raises(BufferError, match="no elements of type bf16; read the array with np"):
        memoryview(snp.ones(2, "bfloat16"))
    with pytest.raises(BufferError, match="a buffer has no random keys"):
        memoryview(random.key(0))
    assert np.asarray(snp.ones(2, "bfloat16")).dtype == ml_dtypes.bfloat16
