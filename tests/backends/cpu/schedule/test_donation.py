"""Results take the memory of arguments that were given away, and of no others."""

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.backends.cpu.threads import memory
from shardir.errors import InterpretError

SIZE = 1 << 12


def made() -> Any:
    """An array whose memory is the pool's."""
    return sd.jit(lambda x: x * 1.5)(np.arange(SIZE, dtype=np.float32))


def address(x: Any) -> int:
    found: int = x.storage.address
    return found


def step(x: Any) -> Any:
    return x - 0.5 * snp.sin(x)


def test_a_donated_argument_becomes_the_result() -> None:
    x = made()
    want, before = np.asarray(step(np.arange(SIZE, dtype=np.float32) * 1.5)), address(x)
    y = sd.jit(step, donate_argnums=0)(x)
    assert address(y) == before
    np.testing.assert_allclose(np.asarray(y), want, rtol=1e-6)


def test_an_argument_that_is_kept_stays() -> None:
    x = made()
    before = np.array(x)
    y = sd.jit(step)(x)
    assert address(y) != address(x)
    np.testing.assert_array_equal(np.asarray(x), before)


def test_memory_that_another_array_shows_stays() -> None:
    x = made()
    mesh = sd.make_mesh((4,), ("x",))
    other = sd.device_put(x, sd.NamedSharding(mesh, sd.P("x")))
    before = np.array(other)
    y = sd.jit(step, donate_argnums=0)(x)
    np.testing.assert_array_equal(np.asarray(other), before)
    assert address(y) != address(other)


def test_memory_that_numpy_has_seen_stays() -> None:
    x = made()
    seen = np.asarray(x)
    before = seen.copy()
    sd.jit(step, donate_argnums=0)(x)
    np.testing.assert_array_equal(seen, before)


def test_a_column_and_a_row_beside_a_donated_argument_change_nothing() -> None:
    x, column, row = made().reshape(64, 64), np.ones((64, 1), "f4"), np.full((1, 64), 2, "f4")
    numbers = np.arange(SIZE, dtype=np.float32).reshape(64, 64) * np.float32(1.5)
    want, before = (numbers - column) * row, address(x)
    y = sd.jit(lambda x, a, b: (x - a) * b, donate_argnums=0)(x, column, row)
    assert address(y) == before
    np.testing.assert_array_equal(y, want)


def test_an_argument_that_is_read_later_is_not_written_over() -> None:
    def shifted(x: Any) -> tuple[Any, Any]:
        y = x + 1
        return y, y * x[::-1]

    x = made()
    old = np.arange(SIZE, dtype=np.float32) * np.float32(1.5)
    y, z = sd.jit(shifted, donate_argnums=0)(x)
    np.testing.assert_array_equal(np.asarray(y), old + 1)
    np.testing.assert_array_equal(np.asarray(z), (old + 1) * old[::-1])


def test_temporaries_are_written_over() -> None:
    def chain(x: Any) -> Any:
        for _ in range(4):
            x = snp.cumsum(x)[::-1]
        return x

    compiled = sd.jit(chain).lower(made()).compile()
    assert compiled.memory_analysis().host_temp_size_in_bytes <= 2 * 4 * SIZE


def test_a_program_compiled_ahead_takes_what_is_donated() -> None:
    x = made()
    compiled = sd.jit(step, donate_argnums=0).lower(x).compile()
    want, before = np.asarray(step(np.arange(SIZE, dtype=np.float32) * 1.5)), address(x)
    y = compiled(x)
    assert x.is_deleted()
    assert address(y) == before
    np.testing.assert_allclose(np.asarray(y), want, rtol=1e-6)


def test_what_was_written_over_is_gone_when_a_callback_fails() -> None:
    wanted = sd.ShapeDtypeStruct((SIZE,), np.float32)

    def scaled(x: Any) -> tuple[Any, Any]:
        y = x * 3
        return y, sd.pure_callback(lambda v: v[:3], wanted, y)

    x = made()
    with pytest.raises(InterpretError, match="and it is to return"):
        sd.jit(scaled, donate_argnums=0)(x)
    assert x.is_deleted()


def test_what_is_written_over_counts_once() -> None:
    nbytes = 4 * SIZE
    plain, donated = (
        sd.jit(step, donate_argnums=given).lower(made()).compile() for given in ((), (0,))
    )
    assert plain.memory_analysis().alias_size_in_bytes == 0
    assert plain.memory_analysis().host_peak_memory_in_bytes == 2 * nbytes
    told = donated.memory_analysis()
    assert told.alias_size_in_bytes == nbytes
    assert told.host_peak_memory_in_bytes == nbytes
    assert told.peak_memory_in_bytes == plain.memory_analysis().peak_memory_in_bytes - nbytes


def test_the_schedule_says_which_argument_a_result_is_written_over() -> None:
    text = sd.jit(lambda x: (x[::-1], x + 1)).lower(made()).compile().as_text("schedule")
    assert "result, over %x if it is donated" in text


def test_the_peak_is_what_a_run_takes() -> None:
    """Of blocks that are mapped for themselves, so that the pool counts them to the byte."""
    rows = 1 << 11

    def run(function: Callable[..., Any], donated: tuple[int, ...] = ()) -> tuple[int, int]:
        x = snp.full((rows, rows), 0.5)
        compiled = sd.jit(function, donate_argnums=donated).lower(x).compile()
        gc.collect()
        nbytes, before = x.nbytes, memory.statistics().in_use
        out = compiled(x)
        held = memory.statistics().in_use - before
        del out
        told = compiled.memory_analysis()
        return told.host_peak_memory_in_bytes - told.host_temp_size_in_bytes, nbytes + held

    for function, donated in (
        (lambda x: x + 1, ()),
        (lambda x: x + 1, (0,)),
        (lambda x: x.at[3].set(1), (0,)),
        (lambda x: (x, x + 1), (0,)),
        (lambda x: (x + 1, x * 2, x.T), ()),
        (lambda x: sd.lax.fori_loop(0, 3, lambda i, c: c + i, x), (0,)),
    ):
        said, measured = run(function, donated)
        assert said == measured
