"""The reasons for which functions are compiled again, in `cache_info` and in the log."""

import logging
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import shardir
import shardir.numpy as jnp
from shardir.sharding import NamedSharding, PartitionSpec as P


def double(x: Any, n: int = 2) -> Any:
    return x * n


def reasons(function: Any) -> list[str]:
    return [each.reason for each in function.cache_info().compilations]


def test_the_first_call_and_other_shapes() -> None:
    f = shardir.jit(lambda x, y: x + y)
    f(jnp.ones(4), jnp.ones(4))
    f(jnp.ones(4), jnp.ones(4))
    f(jnp.ones(5), jnp.ones(5))
    f(jnp.ones((2, 5)), jnp.ones(5))
    assert reasons(f) == [
        "first call",
        "argument x has shape (5,), not (4,); argument y has shape (5,), not (4,)",
        "argument x has shape (2, 5), not (5,)",
    ]


def test_other_dtypes_and_weak_types() -> None:
    f = shardir.jit(lambda x: x + 1)
    f(jnp.ones(4))
    f(jnp.ones(4, "int32"))
    f(jnp.ones(()))
    f(2.0)
    assert reasons(f)[1:] == [
        "argument x has dtype i32, not f32",
        "argument x has shape (), not (4,)",
        "argument x has a weak type, as Python numbers have",
    ]


def test_another_sharding() -> None:
    mesh = shardir.make_mesh((8,), ("data",))
    f = shardir.jit(lambda x: x + 2)
    f(jnp.ones(8))
    f(shardir.device_put(jnp.ones(8), NamedSharding(mesh, P("data"))))
    f(shardir.device_put(jnp.ones(8), NamedSharding(mesh, P())))
    assert reasons(f)[1:] == [
        "argument x is placed as NamedSharding(mesh=Mesh('data': 8, axis_types=(Auto,)), "
        "spec=P('data',), memory_kind=device), "
        "not committed to devices",
        "argument x is placed as NamedSharding(mesh=Mesh('data': 8, axis_types=(Auto,)), "
        "spec=P(), memory_kind=device), not placed as NamedSharding(mesh=Mesh('data': 8, "
        "axis_types=(Auto,)), spec=P('data',), memory_kind=device)",
    ]


def test_another_static_value() -> None:
    f = shardir.jit(lambda x, n, how: x * n, static_argnames=("n", "how"))
    f(jnp.ones(4), 2, how="a")
    f(jnp.ones(4), 3, how="a")
    f(jnp.ones(4), 3, how="b")
    assert reasons(f)[1:] == [
        "static argument n is 3, not 2",
        "static argument how is 'b', not 'a'",
    ]


def test_another_structure() -> None:
    f = shardir.jit(lambda x: shardir.tree.leaves(x)[0])
    f({"a": jnp.ones(4)})
    f({"a": jnp.ones(4), "b": jnp.ones(4)})
    f([jnp.ones(4)])
    assert reasons(f)[1:] == ["argument x.b is new", "argument x.0 is new; argument x.a is absent"]


def test_another_setting_and_another_mesh() -> None:
    f = shardir.jit(lambda x: x + 3)
    f(jnp.ones(4))
    with shardir.config(shardy_exact=True):
        f(jnp.ones(4))
    with shardir.make_mesh((2,), ("data",)):
        f(jnp.ones(4))
    assert reasons(f)[1:] == [
        "the setting shardy_exact is True, not False",
        "the mesh of the enclosing block is Mesh('data': 2, axis_types=(Auto,)), not None",
    ]


def test_a_cleared_cache() -> None:
    f = shardir.jit(lambda x: x + 4)
    f(jnp.ones(4))
    f.clear_cache()
    f(jnp.ones(4))
    assert reasons(f)[1:] == [
        "the program was removed from the cache, because clear_cache was called"
    ]


def test_a_function_that_is_jitted_for_each_call() -> None:
    for _ in range(2):
        f = shardir.jit(lambda x: x + 5)
        f(jnp.ones(4))
    assert reasons(f) == [
        "first call of this jitted function, and another one with the same code was compiled "
        "before; call jit once, outside of loops and functions"
    ]


def test_the_information_is_a_table() -> None:
    f = shardir.jit(double, static_argnums=1)
    f(jnp.ones(4), 2)
    f(jnp.ones(5), 2)
    found = f.cache_info()
    assert found.currsize == f._cache_size() == 2
    lines = repr(found).splitlines()
    assert lines[0] == "double: 2 compilations, 2 programs in the cache"
    assert lines[3].endswith(" ms  (x: f32[5], n=2)")
    assert lines[4] == "   argument x has shape (5,), not (4,)"
    f.clear_cache()
    assert f._cache_size() == 0


def test_compilations_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    f = shardir.jit(lambda x: x + 6)
    f(np.ones(4, np.float32))
    with caplog.at_level(logging.WARNING), shardir.config(log_compiles=True):
        f(np.ones(5, np.float32))
        f(np.ones(5, np.float32))
    (record,) = caplog.records
    assert record.name == "shardir.jit"
    before, _, after = record.getMessage().partition(": compiled lambda in ")
    assert before.startswith("tests/frontend/dispatch/test_cache_info.py:")
    assert after.partition(" ms ")[2] == "for (x: f32[5]): argument x has shape (5,), not (4,)"


def test_pmap_has_the_same_information() -> None:
    f = shardir.pmap(lambda x: x + 7)
    f(jnp.ones((2, 3)))
    assert f.cache_info().currsize == 1


def test_a_container_of_another_class() -> None:
    f = shardir.jit(lambda x: x[0])
    f([jnp.ones(4)])
    f((jnp.ones(4),))
    assert reasons(f)[1:] == ["the arguments have another pytree structure"]


def test_an_absent_argument() -> None:
    f = shardir.jit(lambda x, y=2.0: x * y)
    f(jnp.ones(4), 1.0)
    f(jnp.ones(4))
    assert reasons(f)[1:] == ["argument y is absent"]


def test_static_values_are_shown_as_they_were_passed() -> None:
    f = shardir.jit(lambda x, n: x, static_argnums=1)
    values = [(3,), (3, (4, "a")), (), 0.0, -0.0, (-0.0,), int, "int", None]
    for value in values:
        f(jnp.ones(4), value)
    texts = [repr(value) for value in values]
    assert reasons(f)[1:] == [
        f"static argument n is {new}, not {old}" for old, new in pairwise(texts)
    ]
