"""Results take the memory of arguments that were given away, and of no others."""

from typing import Any

import numpy as np

import shardir as sd
import shardir.numpy as snp

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
        return snp.sort(snp.cumsum(snp.sort(x)) + 1)

    compiled = sd.jit(chain).lower(made()).compile()
    assert compiled.memory_analysis().host_temp_size_in_bytes <= 2 * 4 * SIZE
