"""Arguments of compiled programs: their memory, their padding, and their shards."""

from functools import partial
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.backends.storage import Storage
from shardir.frontend.errors import ArgumentError, IndivisibleError, ShardingError
from shardir.sharding import Mesh, NamedSharding, PartitionSpec as P
from tests.backends.cpu.guard_pages import copy_before_guard_page
from tests.error_assertions import assert_raises_exactly

MESH = sd.make_mesh((4,), ("a",))
SHARDED = NamedSharding(MESH, P("a"))
ROWS = np.arange(5 * 1024, dtype=np.float32).reshape(5, 1024)


def array_before_guard_page(x: Any) -> Any:
    made: Any = snp.asarray(x)
    made.buffers = Storage.of(copy_before_guard_page(x))
    return made


@pytest.mark.parametrize("make", [copy_before_guard_page, array_before_guard_page])
def test_padding_reads_no_memory_behind_an_argument(make: Any) -> None:
    twice = sd.jit(lambda x: x * 2, in_shardings=SHARDED, uneven="pad")
    for _ in range(3):
        made = twice(make(ROWS))
        np.testing.assert_array_equal(made, ROWS * 2)
        np.testing.assert_array_equal(twice(made), ROWS * 4)


def test_padded_results_are_arguments_of_functions_that_do_not_pad() -> None:
    made = sd.jit(lambda x: x + 1, in_shardings=SHARDED, uneven="pad")(ROWS)
    for function in (sd.jit(snp.sum), sd.jit(snp.sum, in_shardings=SHARDED)):
        assert function(made) == (ROWS + 1).sum()


@pytest.mark.parametrize("requested", [None, SHARDED])
def test_shapes_that_do_not_divide_are_errors_when_a_function_is_lowered(requested: Any) -> None:
    function = sd.jit(lambda x: x, in_shardings=requested)
    assert_raises_exactly(
        partial(function.lower, sd.ShapeDtypeStruct((3,), np.float32, sharding=SHARDED)),
        IndivisibleError,
        "argument x of lambda: dimension 0 of shape (3,) has size 3, which is not divisible by 4: "
        "it is sharded over the mesh axis 'a' of size 4; pad it to 4, replicate it, or pass "
        'uneven="pad"',
    )


def test_the_order_of_devices_is_part_of_the_sharding_of_an_argument() -> None:
    reversed_mesh = Mesh(np.array(sd.devices()[3::-1]), ("a",))
    x = sd.device_put(np.arange(4), NamedSharding(reversed_mesh, P()))
    function = sd.jit(lambda x: x + 1, in_shardings=NamedSharding(MESH, P()))
    given = "NamedSharding(mesh=Mesh('a': 4, device_ids=[3, 2, 1, 0]), spec=PartitionSpec())"
    expected = "NamedSharding(mesh=Mesh('a': 4), spec=PartitionSpec())"
    assert_raises_exactly(
        partial(function, x),
        ShardingError,
        f"argument x of lambda is placed as {given}, and in_shardings requests {expected}; move it "
        "there with device_put, or set its entry of in_shardings to None",
    )
    assert_raises_exactly(
        partial(function.lower(np.arange(4)).compile(), x),
        ArgumentError,
        f"argument x of lambda is i32[4] placed as {given}, and it was compiled for i32[4] placed "
        f"as {expected}; lower it for such arguments",
    )


@pytest.mark.parametrize("isolated", [False, True])
def test_sharding_an_argument_leaves_the_array_as_it_is(isolated: bool) -> None:
    with sd.config(isolated=isolated):
        sharded = sd.jit(lambda x: x * 2, in_shardings=SHARDED)
        single = sd.jit(lambda x: x * 3)
        x, expected = snp.arange(8), np.arange(8)
        for _ in range(3):
            np.testing.assert_array_equal(sharded(x), expected * 2)
            np.testing.assert_array_equal(single(x), expected * 3)
            np.testing.assert_array_equal(x, expected)
