"""Results reuse the memory of donated arguments, and no other memory."""

import gc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.backends.cpu.threads import memory
from shardir.errors import InterpretError

SIZE = 1 << 12


def pool_array() -> Any:
    """Return an array in memory of the pool."""
    return sd.jit(lambda x: x * 1.5)(np.arange(SIZE, dtype=np.float32))


def address(x: Any) -> int:
    found: int = x.storage.address
    return found


def step(x: Any) -> Any:
    return x - 0.5 * snp.sin(x)


def test_the_result_reuses_a_donated_argument() -> None:
    x = pool_array()
    want, before = np.asarray(step(np.arange(SIZE, dtype=np.float32) * 1.5)), address(x)
    y = sd.jit(step, donate_argnums=0)(x)
    assert address(y) == before
    np.testing.assert_allclose(np.asarray(y), want, rtol=1e-6)


def test_an_argument_without_donation_is_unchanged() -> None:
    x = pool_array()
    before = np.array(x)
    y = sd.jit(step)(x)
    assert address(y) != address(x)
    np.testing.assert_array_equal(np.asarray(x), before)


def test_memory_shared_with_another_array_is_unchanged() -> None:
    x = pool_array()
    mesh = sd.make_mesh((4,), ("x",))
    other = sd.device_put(x, sd.NamedSharding(mesh, sd.P("x")))
    before = np.array(other)
    y = sd.jit(step, donate_argnums=0)(x)
    np.testing.assert_array_equal(np.asarray(other), before)
    assert address(y) != address(other)


def test_memory_shared_with_numpy_is_unchanged() -> None:
    x = pool_array()
    seen = np.asarray(x)
    before = seen.copy()
    sd.jit(step, donate_argnums=0)(x)
    np.testing.assert_array_equal(seen, before)


def test_broadcast_operands_do_not_prevent_reuse() -> None:
    x, column, row = pool_array().reshape(64, 64), np.ones((64, 1), "f4"), np.full((1, 64), 2, "f4")
    numbers = np.arange(SIZE, dtype=np.float32).reshape(64, 64) * np.float32(1.5)
    want, before = (numbers - column) * row, address(x)
    y = sd.jit(lambda x, a, b: (x - a) * b, donate_argnums=0)(x, column, row)
    assert address(y) == before
    np.testing.assert_array_equal(y, want)


def test_a_donated_argument_that_is_read_later_is_not_overwritten() -> None:
    def increment_and_multiply(x: Any) -> tuple[Any, Any]:
        y = x + 1
        return y, y * x[::-1]

    x = pool_array()
    old = np.arange(SIZE, dtype=np.float32) * np.float32(1.5)
    y, z = sd.jit(increment_and_multiply, donate_argnums=0)(x)
    np.testing.assert_array_equal(np.asarray(y), old + 1)
    np.testing.assert_array_equal(np.asarray(z), (old + 1) * old[::-1])


def test_temporaries_are_reused() -> None:
    def chain(x: Any) -> Any:
        for _ in range(4):
            x = snp.cumsum(x)[::-1]
        return x

    compiled = sd.jit(chain).lower(pool_array()).compile()
    assert compiled.memory_analysis().host_temp_size_in_bytes <= 2 * 4 * SIZE


@pytest.mark.parametrize("keys", [("int32",), ("int32", "int64")])
def test_sorts_for_the_permutation_plan_memory_for_positions_only(keys: Sequence[str]) -> None:
    """Kernels sort one key; NumPy sorts two of which one has 64 bits, and many short lines."""

    def sort_and_add(*keys: Any) -> Any:
        sums = snp.cumsum(keys[0], axis=1)
        return snp.lexsort(keys, axis=1) * (sums + 1)

    shape = (600, 8)
    with sd.enable_x64(True):
        structs = [sd.ShapeDtypeStruct(shape, dtype) for dtype in keys]
        compiled = sd.jit(sort_and_add).lower(*structs).compile()
        sums = positions = 4 * 600 * 8
        assert compiled.memory_analysis().host_temp_size_in_bytes == sums + 2 * positions
        arrays = [np.random.default_rng(0).integers(0, 3, shape).astype(dtype) for dtype in keys]
        wanted = np.lexsort(arrays, axis=1) * (np.cumsum(arrays[0], axis=1) + 1)
        np.testing.assert_array_equal(compiled(*arrays), wanted)


def test_an_ahead_of_time_compiled_program_reuses_donated_arguments() -> None:
    x = pool_array()
    compiled = sd.jit(step, donate_argnums=0).lower(x).compile()
    want, before = np.asarray(step(np.arange(SIZE, dtype=np.float32) * 1.5)), address(x)
    y = compiled(x)
    assert x.is_deleted()
    assert address(y) == before
    np.testing.assert_allclose(np.asarray(y), want, rtol=1e-6)


def test_an_overwritten_argument_is_deleted_after_an_error() -> None:
    wanted = sd.ShapeDtypeStruct((SIZE,), np.float32)

    def scale_and_call(x: Any) -> tuple[Any, Any]:
        y = x * 3
        return y, sd.pure_callback(lambda v: v[:3], wanted, y)

    x = pool_array()
    with pytest.raises(InterpretError, match="is declared"):
        sd.jit(scale_and_call, donate_argnums=0)(x)
    assert x.is_deleted()


def test_reused_memory_counts_once_in_the_analysis() -> None:
    nbytes = 4 * SIZE
    plain, donated = (
        sd.jit(step, donate_argnums=given).lower(pool_array()).compile() for given in ((), (0,))
    )
    assert plain.memory_analysis().alias_size_in_bytes == 0
    assert plain.memory_analysis().host_peak_memory_in_bytes == 2 * nbytes
    analysis = donated.memory_analysis()
    assert analysis.alias_size_in_bytes == nbytes
    assert analysis.host_peak_memory_in_bytes == analysis.peak_memory_in_bytes == nbytes
    assert analysis.peak_memory_in_bytes == plain.memory_analysis().peak_memory_in_bytes - nbytes


def test_each_result_of_one_kernel_reuses_a_donated_argument() -> None:
    """The schedule does not know which arguments are donated, and here `gradient` is not."""

    def update(weights: Any, momentum: Any, gradient: Any) -> tuple[Any, Any]:
        momentum = momentum * 0.5 + gradient
        return weights - momentum, momentum

    weights, momentum, gradient = pool_array(), pool_array() + 1, pool_array() + 2
    numbers = np.arange(SIZE, dtype=np.float32) * np.float32(1.5)
    wanted = update(numbers, numbers + 1, numbers + 2)
    before = {address(weights), address(momentum)}
    step = sd.jit(update, donate_argnums=(0, 1))
    analysis = step.lower(weights, momentum, gradient).compile().memory_analysis()
    assert analysis.alias_size_in_bytes == 2 * 4 * SIZE
    results = step(weights, momentum, gradient)
    assert {address(x) for x in results} == before
    for got, want in zip(results, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-6)


def test_only_results_of_the_same_size_reuse_an_argument() -> None:
    def repeat(x: Any) -> tuple[Any, Any]:
        y = snp.sort(-x)
        least = snp.min(y)
        return snp.tile(y, 3) * least, y * least

    x = pool_array()
    y, before = np.sort(-np.asarray(x)), address(x)
    large, same = sd.jit(repeat, donate_argnums=0)(x)
    assert address(large) != before
    np.testing.assert_array_equal(large, np.tile(y, 3) * y[0])
    np.testing.assert_array_equal(same, y * y[0])


def test_a_donated_argument_that_is_a_result_is_not_overwritten() -> None:
    for function in (lambda x: (x, x + 1), lambda x: (x + 1, x), lambda x: (snp.sort(x) * 2, x)):
        x = pool_array()
        expected = [np.asarray(each) for each in function(np.asarray(x))]
        for made, numbers in zip(sd.jit(function, donate_argnums=0)(x), expected, strict=True):
            np.testing.assert_array_equal(made, numbers)


def test_the_schedule_names_the_reused_argument() -> None:
    text = sd.jit(lambda x: (x[::-1], x + 1)).lower(pool_array()).compile().as_text("schedule")
    assert "result, over %x if it is donated" in text


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        # An argument that is a result, and one of another size, is no memory of a result.
        (lambda x, y: (x, x + 1, y), []),
        (lambda x, y: (snp.tile(snp.sort(x), 3) * y[0], y), []),
        # A result needs the memory of one argument.
        (lambda x, y: snp.sort(snp.cumsum(x) + snp.cumsum(y)), ["x"]),
        (lambda x, y: x + y, ["x or %y"]),
    ],
)
def test_the_schedule_names_arguments_that_results_may_overwrite(
    function: Callable[..., Any], arguments: list[str]
) -> None:
    x = pool_array()
    text = str(sd.jit(function).lower(x, x).compile().as_text("schedule"))
    found = [line.partition("over %")[2] for line in text.splitlines() if "over %" in line]
    assert found == [f"{each} if it is donated" for each in arguments]


def test_the_reported_peak_equals_the_measured_memory() -> None:
    """The arrays are blocks with their own pages, so that the pool counts exact bytes."""
    rows = 1 << 11

    def run(function: Callable[..., Any], donated: tuple[int, ...] = ()) -> tuple[int, int]:
        x = snp.full((rows, rows), 0.5)
        compiled = sd.jit(function, donate_argnums=donated).lower(x).compile()
        gc.collect()
        nbytes, before = x.nbytes, memory.statistics().in_use
        out = compiled(x)
        allocated = memory.statistics().in_use - before
        del out
        analysis = compiled.memory_analysis()
        return (
            analysis.host_peak_memory_in_bytes - analysis.host_temp_size_in_bytes,
            nbytes + allocated,
        )

    for function, donated in (
        (lambda x: x + 1, ()),
        (lambda x: x + 1, (0,)),
        (lambda x: x.at[3].set(1), (0,)),
        (lambda x: (x, x + 1), (0,)),
        (lambda x: (x + 1, x * 2, x.T), ()),
        (lambda x: sd.lax.fori_loop(0, 3, lambda i, c: c + i, x), (0,)),
    ):
        reported, measured = run(function, donated)
        assert reported == measured


def test_a_donated_argument_that_is_a_result_keeps_its_elements() -> None:
    """The other result is first written after the last read of the argument."""

    def passed_and_scanned(x: Any) -> Any:
        return x, snp.cumsum(snp.flip(snp.cumsum(snp.sin(x))))

    given = np.arange(SIZE, dtype=np.float32) * 1.5
    function = sd.jit(passed_and_scanned, donate_argnums=0)
    for _ in range(3):
        x, y = function(pool_array())
        np.testing.assert_array_equal(x, given)
        assert address(x) != address(y)
