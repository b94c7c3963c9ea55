"""Repeated calls of functions that place their arguments: `pmap`, and `jit` with a device.

`shard_map` outside of `jit` traces at every call, as in JAX.
"""

from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir.frontend.arrays.array import from_numpy
from shardir.frontend.dispatch.jit_function import JitFunction
from shardir.frontend.errors import NotAnArrayError
from shardir.frontend.shardings.sharding import NamedSharding, SingleDeviceSharding
from tests.call_count import count_calls
from tests.native_tier import needs_native

ROWS = np.arange(8, dtype=np.float32).reshape(4, 2)


def placed_variants() -> list[Any]:
    """Return the same elements where nobody placed them, on one device, and on several."""
    mesh = sd.make_mesh((2,), ("m",))
    return [
        ROWS,
        from_numpy(ROWS),
        sd.device_put(ROWS, sd.devices()[3]),
        sd.device_put(ROWS, NamedSharding(mesh, sd.P("m"))),
        sd.device_put(ROWS, NamedSharding(mesh, sd.P(None, "m"))),
    ]


def functions() -> list[JitFunction]:
    return [sd.pmap(lambda x: x * 2), sd.jit(lambda x: x * 2, device=sd.devices()[1])]


@needs_native
@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("which", range(2))
def test_repeated_calls_run_no_python_code(which: int, number: int) -> None:
    fun, given = functions()[which], placed_variants()[number]
    for _ in range(3):
        first = fun(given)
    calls = count_calls(lambda: fun(given))
    simple = sd.jit(lambda x: x * 2)
    simple(given)
    assert calls == count_calls(lambda: simple(given))
    again = fun(given)
    assert again.signature is first.signature
    assert again.sharding == first.sharding
    assert np.array_equal(again, ROWS * 2)


@pytest.mark.parametrize("which", range(2))
def test_arguments_on_other_devices_have_the_same_results(which: int) -> None:
    fun = functions()[which]
    for _ in range(3):
        for given in placed_variants():
            out = fun(given)
            assert np.array_equal(out, ROWS * 2)
            if which:
                assert out.sharding == SingleDeviceSharding(sd.devices()[1])
            else:
                assert len(out.sharding.device_assignment) == 4


def test_repeated_calls_read_the_current_elements() -> None:
    fun, given = sd.pmap(lambda x: x + 1), ROWS.copy()
    fun(given)
    given[:] = 5
    kept = fun(given)
    given[:] = 7
    assert np.array_equal(kept, np.full_like(ROWS, 6))
    same = sd.pmap(lambda x: x)
    same(given)
    kept = same(given)
    given[:] = 9
    assert np.array_equal(kept, np.full_like(ROWS, 7))


def test_shared_and_static_arguments_and_an_array_that_is_passed_twice() -> None:
    fun = sd.pmap(lambda a, b, k: a - b * k, in_axes=(0, None, None), static_broadcasted_argnums=2)
    row = from_numpy(ROWS[0])
    for factor in (2, 2, 3, 2):
        assert np.array_equal(fun(ROWS, row, factor), ROWS - ROWS[0] * factor)
    for scalar in (1.5, 2.5):
        assert np.array_equal(fun(from_numpy(ROWS), scalar, 2), ROWS - 2 * scalar)
    both = sd.pmap(lambda a, b: a - 2 * b)
    x, y = from_numpy(ROWS), from_numpy(ROWS + 1)
    for a, b in ((x, x), (x, y), (y, x), (y, y)):
        assert np.array_equal(both(a, b), np.asarray(a) - 2 * np.asarray(b))


def test_donated_arguments_are_those_that_were_placed() -> None:
    fun = sd.pmap(lambda x: x + 1, donate_argnums=0)
    for _ in range(3):
        for given in (from_numpy(ROWS), sd.device_put(ROWS, sd.devices()[3])):
            assert np.array_equal(fun(given), ROWS + 1)
            assert np.array_equal(given, ROWS)
        placed = sd.pmap(lambda x: x + 0)(ROWS)
        assert np.array_equal(fun(placed), ROWS + 1)
        assert placed.is_deleted()


def test_the_device_of_jit_is_that_of_lowered_programs_and_of_constants() -> None:
    device = sd.devices()[1]
    where = SingleDeviceSharding(device)
    compiled = sd.jit(lambda x: x + 1, device=device).lower(from_numpy(ROWS)).compile()
    assert compiled.input_shardings == ((where,), {})
    assert sd.jit(lambda: sd.numpy.zeros(3), device=device)().sharding == where
    for x in placed_variants():
        for program in (compiled, sd.jit(lambda x: x + 1, device=device).lower(x).compile()):
            assert np.array_equal(program(x), ROWS + 1)
            assert program(x).sharding == where


def test_a_pmap_inside_of_a_program_checks_its_arguments() -> None:
    inner = sd.pmap(lambda x, name: x)
    text = (
        "argument name of lambda is 'text' of type str, which is not an array; list it in static_"
    )
    with pytest.raises(NotAnArrayError, match=text):
        sd.jit(lambda x: inner(x, "text"))(ROWS)


def test_a_nested_pmap_moves_arguments_to_more_devices() -> None:
    fun = sd.pmap(lambda x: sd.pmap(lambda y: y * 3)(x))
    for _ in range(3):
        out = fun(ROWS)
        assert np.array_equal(out, ROWS * 3)
        assert len(out.sharding.device_assignment) == 8


def test_cached_calls_of_pmap_depend_on_the_settings() -> None:
    ran = []

    def note(x: Any) -> Any:
        ran.append(x)
        return x + 1

    fun = sd.pmap(note)
    for _ in range(3):
        fun(ROWS)
        with sd.enable_x64():
            assert fun(ROWS.astype(np.float64)).dtype == np.float64
        assert fun(ROWS.astype(np.float64)).dtype == np.float32
    assert len(ran) == 2
    fun.clear_cache()
    fun(ROWS)
    assert len(ran) == 3


def test_shard_map_outside_of_jit_reads_captured_variables_at_every_call() -> None:
    mesh, offset = sd.make_mesh((4,), ("m",)), 1.0
    fun = sd.shard_map(lambda x: x + offset, mesh=mesh, in_specs=sd.P("m"), out_specs=sd.P("m"))
    assert np.array_equal(fun(ROWS), ROWS + 1)
    offset = 2.0
    assert np.array_equal(fun(ROWS), ROWS + 2)
