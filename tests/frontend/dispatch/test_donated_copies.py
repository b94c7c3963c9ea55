"""Donation deletes arguments whose memory the program reuses; a copied argument stays valid."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.sharding import Mesh, NamedSharding, PartitionSpec as P

ROWS = 1 << 13
"""Enough for results to take the memory of arguments."""

NUMBERS = np.arange(ROWS, dtype=np.float32)


def named(*spec: Any) -> NamedSharding:
    return NamedSharding(Mesh(np.array(sd.devices()[:4]), ("s",)), P(*spec))


def free() -> Any:
    """Return an uncommitted array in memory of the pool."""
    return sd.jit(lambda: snp.arange(ROWS, dtype=snp.float32))()


def on_another_device() -> Any:
    with sd.default_device(sd.devices()[3]):
        return free()


def placed(*spec: Any) -> Callable[[], Any]:
    return lambda: sd.device_put(free(), named(*spec))


def twice(make: Callable[[], Any]) -> Callable[[], tuple[Any, ...]]:
    def made() -> tuple[Any, ...]:
        x = make()
        return x, x

    return made


def add(p: Any) -> Any:
    return p + 1


def both(p: Any, q: Any) -> Any:
    return p + 1, q * 2


CASES: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]], list[bool]]] = {
    "resharded": (
        sd.jit(add, in_shardings=named("s"), donate_argnums=0), lambda: (free(),), [False]),
    "replicated": (
        sd.jit(add, in_shardings=named(), donate_argnums=0), lambda: (free(),), [False]),
    "resharded in a container": (
        sd.jit(lambda p: sd.tree.map(add, p), in_shardings=named("s"), donate_argnums=0),
        lambda: ({"a": free(), "b": placed("s")()},), [False, True]),
    "by name of the argument": (
        sd.jit(add, in_shardings=named("s"), donate_argnames="p"), lambda: (free(),), [False]),
    "compiled ahead": (
        sd.jit(add, in_shardings=named("s"), donate_argnums=0).lower(NUMBERS).compile(),
        lambda: (free(),), [False]),
    "moved to where another argument is placed": (
        sd.jit(both, donate_argnums=0), lambda: (free(), placed("s")()), [False, False]),
    "moved to the device of another argument": (
        sd.jit(both, donate_argnums=0),
        lambda: (free(), sd.device_put(free(), sd.devices()[3])), [False, False]),
    "moved to the device of jit": (
        sd.jit(add, donate_argnums=0, device=sd.devices()[3]), lambda: (free(),), [False]),
    "moved from another device": (
        sd.jit(add, donate_argnums=0), lambda: (on_another_device(),), [False]),
    "given twice, resharded": (
        sd.jit(both, in_shardings=named("s"), donate_argnums=(0, 1)), twice(free), [False, False]),
    "given and kept, resharded": (
        sd.jit(both, in_shardings=named("s"), donate_argnums=0), twice(free), [False, False]),
    "mapped over devices": (
        sd.pmap(add, donate_argnums=0), lambda: (free().reshape(8, -1),), [False]),
    "not used": (
        sd.jit(lambda p, q: q + 1, donate_argnums=0), lambda: (free(), free()), [False, False]),
    "of no result's shape": (
        sd.jit(lambda p: p.sum(), donate_argnums=0), lambda: (free(),), [False]),
    "converted": (
        sd.jit(lambda p: p.astype(snp.bfloat16), donate_argnums=0), lambda: (free(),), [False]),
    "one for the only result": (
        sd.jit(lambda p, q: p + q, donate_argnums=(0, 1)), lambda: (free(), free()),
        [True, False]),
    "as it is": (sd.jit(add, donate_argnums=0), lambda: (free(),), [True]),
    "placed as it is needed": (
        sd.jit(add, in_shardings=named("s"), donate_argnums=0), placed("s"), [True]),
    "placed by an equivalent sharding": (
        sd.jit(add, in_shardings=named("s"), donate_argnums=0), placed(("s",)), [True]),
    "where the other argument is": (
        sd.jit(both, donate_argnums=0),
        lambda: (free(), sd.device_put(free(), sd.devices()[0])), [True, False]),
    "given twice": (sd.jit(both, donate_argnums=(0, 1)), twice(free), [True, True]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_donation_deletes_arrays_that_are_not_copied(name: str) -> None:
    run, make, gone = CASES[name]
    for _ in range(4):  # The first call, hits in Python, and hits in the native call cache.
        args = make()
        args = args if isinstance(args, tuple) else (args,)
        made = run(*args)
        leaves = sd.tree.leaves(args)
        assert [leaf.is_deleted() for leaf in leaves] == gone
        for leaf in leaves:
            if not leaf.is_deleted():
                np.testing.assert_array_equal(np.asarray(leaf).ravel(), NUMBERS)
        if name in ("resharded", "replicated", "as it is", "moved from another device"):
            np.testing.assert_array_equal(np.asarray(made), NUMBERS + 1)


def test_donated_numpy_arrays_keep_their_elements() -> None:
    given = NUMBERS.copy()
    step = sd.jit(add, donate_argnums=0)
    for _ in range(4):
        np.testing.assert_array_equal(np.asarray(step(given)), NUMBERS + 1)
        np.testing.assert_array_equal(given, NUMBERS)


def test_a_copy_of_donated_parameters_stays_valid() -> None:
    """One tree is both the parameters, which are resharded and donated, and their running mean."""
    params = {"w": free()}
    mean = params
    step = sd.jit(
        lambda p: sd.tree.map(add, p),
        in_shardings=named("s"), out_shardings=named("s"), donate_argnums=0,
    )  # fmt: skip
    for _ in range(3):
        params = step(params)
        mean = sd.tree.map(lambda m, p: 0.5 * (m + p), mean, params)
    np.testing.assert_array_equal(np.asarray(params["w"]), NUMBERS + 3)
    np.testing.assert_allclose(np.asarray(mean["w"]), NUMBERS + 2.125)
