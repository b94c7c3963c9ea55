"""Results of `jit` of one function with equal options share their compiled calls, as in JAX."""

import copy
import gc
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.sharding import NamedSharding, PartitionSpec as P

X = np.arange(8, dtype=np.float32)
MESH = sd.make_mesh((4,), ("a",))
ROWS, WHOLE = NamedSharding(MESH, P("a")), NamedSharding(MESH, P())


class Counted:
    """Functions that count their traces."""

    def __init__(self) -> None:
        self.count = 0
        self.fun = self._make()

    def _make(self) -> Callable[..., Any]:
        def double(x: Any, factor: Any = 2) -> Any:
            self.count += 1
            return x * factor

        return double


@pytest.fixture
def counted() -> Counted:
    return Counted()


def test_jit_in_a_loop_traces_once(counted: Counted) -> None:
    for step in range(4):
        np.testing.assert_array_equal(sd.jit(counted.fun)(X + step), (X + step) * 2)
    assert counted.count == 1
    assert sd.jit(counted.fun).cache_info().currsize == 1


def test_calls_inside_of_traces_share_their_traces(counted: Counted) -> None:
    for _ in range(2):
        sd.jit(lambda x: sd.jit(counted.fun)(x) + sd.jit(counted.fun)(x))(X)
    assert counted.count == 1


OPTIONS: dict[str, dict[str, Any]] = {
    "static": {"static_argnames": "factor"},
    "donated": {"donate_argnums": 0},
    "device": {"device": sd.devices()[1]},
    "in_shardings": {"in_shardings": ROWS},
    "other in_shardings": {"in_shardings": WHOLE},
    "out_shardings": {"out_shardings": ROWS},
    "uneven": {"uneven": "pad"},
    "passes": {"passes": "default,overlap"},
}


def test_options_have_caches_of_their_own(counted: Counted) -> None:
    sd.jit(counted.fun)(X)
    for count, options in enumerate(OPTIONS.values(), 2):
        for _ in range(2):
            result = sd.jit(counted.fun, **options)(snp.asarray(X))
            np.testing.assert_array_equal(result, X * 2)
        assert counted.count == count
    assert sd.jit(counted.fun, out_shardings=ROWS)(X).sharding == ROWS
    assert sd.jit(counted.fun, device=sd.devices()[1])(X).devices() == {sd.devices()[1]}


def test_options_without_a_hash_are_accepted(counted: Counted) -> None:
    for _ in range(2):
        result = sd.jit(counted.fun, compiler_options={})(X)
        np.testing.assert_array_equal(result, X * 2)
    assert counted.count == 2


def test_a_plan_belongs_to_one_result_of_jit(counted: Counted) -> None:
    for request in (sd.AUTO, (sd.AUTO,)):
        traces = []
        for _ in range(2):
            before = counted.count
            with MESH:
                sd.jit(counted.fun, in_shardings=request)(X)
            traces.append(counted.count - before)
        assert traces[0] == traces[1] > 0


def test_callable_objects_are_traced_for_each_jit(counted: Counted) -> None:
    class Scale:
        factor = 2.0

        def __call__(self, x: Any) -> Any:
            return x * self.factor

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Scale)

        def __hash__(self) -> int:
            return 1

    scale = Scale()
    np.testing.assert_array_equal(sd.jit(scale)(X), X * 2)
    scale.factor = 3.0
    np.testing.assert_array_equal(sd.jit(scale)(X), X * 3)
    for factor in (2, 3):
        np.testing.assert_array_equal(sd.jit(partial(counted.fun, factor=factor))(X), X * factor)


def test_a_function_has_one_cache_for_each_trace_context(counted: Counted) -> None:
    assert sd.jit(counted.fun)(1.5).dtype == np.float32
    with sd.enable_x64(True):
        assert sd.jit(counted.fun)(1.5).dtype == np.float64
    assert sd.jit(counted.fun)(1.5).dtype == np.float32
    assert counted.count == 2


def test_caches_end_with_their_function() -> None:
    counted = Counted()
    sd.jit(counted.fun)(X)
    function = weakref.ref(counted.fun)
    del counted
    gc.collect()
    assert function() is None


def test_clear_caches_clears_those_without_a_jitted_function(counted: Counted) -> None:
    known = sd.jit(counted.fun)
    known(X)
    sd.jit(counted.fun, donate_argnums=0)(snp.asarray(X))
    sd.clear_caches()
    for _ in range(2):
        known(X)
        sd.jit(counted.fun, donate_argnums=0)(snp.asarray(X))
    assert counted.count == 4


def test_clear_cache_clears_that_of_other_results_of_jit(counted: Counted) -> None:
    known = sd.jit(counted.fun)
    known(X)
    sd.jit(counted.fun).clear_cache()
    sd.jit(counted.fun)(X)
    assert counted.count == 2


def test_copies_compile_their_own_programs(counted: Counted) -> None:
    known = sd.jit(counted.fun)
    known(X)
    copied = copy.copy(known)
    copied(X)
    copied(X)
    assert counted.count == 2
    copied.clear_cache()
    known(X)
    assert counted.count == 2
