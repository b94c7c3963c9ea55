"""The state after a call that fails or is interrupted."""

import time
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as jnp
from shardir.backends.cpu.errors import OutOfMemoryError
from shardir.backends.cpu.threads import memory
from shardir.frontend.errors import DeletedArrayError
from tests.process_control.signals import Interrupted, alarm


class Stop(Exception):
    pass


def stop(*_: Any) -> np.ndarray[Any, Any]:
    raise Stop


def halt(x: sd.Array) -> sd.Array:
    made: sd.Array = sd.pure_callback(stop, sd.ShapeDtypeStruct(x.shape, x.dtype), x)
    return made


def test_arrays_donated_to_a_failed_call_are_deleted() -> None:
    x, y = jnp.ones(1000), jnp.ones(1000)
    step = sd.jit(lambda x, y: halt(x + y) * 2, donate_argnums=0)
    with pytest.raises(Stop):
        step(x, y)
    assert x.is_deleted()
    assert (y == 1).all()
    with pytest.raises(DeletedArrayError):
        step(x, y)
    assert not y.is_deleted()


def test_an_out_of_memory_error_leaves_arguments_unchanged() -> None:
    x = jnp.ones((1 << 10, 1 << 10))
    outer = sd.jit(
        lambda x: (x + 1, jnp.broadcast_to(x[0], (1 << 20, 1 << 10)) * 2), donate_argnums=0
    )
    with (
        memory.limit_memory(1 << 30),
        pytest.raises(OutOfMemoryError, match=r"^no memory for 4.0 GiB: "),
    ):
        outer(x)
    assert not x.is_deleted()
    assert (x == 1).all()


def test_sigint_ends_a_long_call() -> None:
    @sd.jit
    def long(x: sd.Array) -> sd.Array:
        made: sd.Array = sd.lax.fori_loop(0, 100_000, lambda i, x: jnp.tanh(x @ x), x)
        return made

    x = jnp.eye(300)
    sd.jit(lambda x: jnp.tanh(x @ x))(x)
    long.lower(x).compile()
    began = time.perf_counter()
    with pytest.raises(Interrupted), alarm(1.0):
        long(x)
    assert time.perf_counter() - began < 10
    assert (jnp.ones(10) + 1 == 2).all()
