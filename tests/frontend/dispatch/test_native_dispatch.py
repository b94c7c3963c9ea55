"""Native dispatch of compiled functions whose arguments are arrays: from arguments to results."""

import gc
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir.backends.cpu.threads.memory import statistics
from shardir.backends.storage import Storage
from shardir.frontend.arrays.array import Array, from_numpy
from shardir.frontend.arrays.device_transfer import block_until_ready, device_put
from shardir.frontend.config import config, enable_x64
from shardir.frontend.dispatch.jit import jit
from shardir.frontend.dispatch.jit_function import JitFunction
from shardir.frontend.errors import DeletedArrayError, LeakedTracerError, NotAnArrayError
from shardir.frontend.pytree import tree
from shardir.frontend.shardings.devices import devices
from shardir.frontend.shardings.mesh import make_mesh
from shardir.frontend.shardings.partition_spec import P
from shardir.frontend.shardings.sharding import NamedSharding
from tests.call_count import count_calls
from tests.native_tier import needs_native
from tests.process_control.threads import run_concurrently

X = from_numpy(np.arange(4, dtype=np.float32))
Y = from_numpy(np.arange(4, dtype=np.int32))


def nested(count: int, leaf: Any = X) -> dict[str, Any]:
    return {f"layer{i}": {"w": leaf, "b": [leaf, (None, {"z": leaf})]} for i in range(count)}


def call_twice(fun: JitFunction, *args: Any, **options: Any) -> Any:
    """Return the result of the second of two calls, which takes the fast path if possible."""
    fun(*args, **options)
    return fun(*args, **options)


@needs_native
def test_the_number_of_python_calls_is_independent_of_the_number_of_arrays() -> None:
    def calls(count: int) -> int:
        fun, given = jit(lambda t: tree.map(lambda x: x + 1, t)), nested(count)
        call_twice(fun, given)
        return count_calls(lambda: fun(given))

    few, many = calls(1), calls(20)
    assert many == few
    fun = jit(lambda x: x + 1)
    call_twice(fun, X)
    assert count_calls(lambda: fun(X)) <= few


@needs_native
def test_block_until_ready_runs_no_python_code_per_array() -> None:
    few, many = nested(1), nested(30)
    call_twice(jit(lambda x: x + 1), X)
    assert block_until_ready(few) is few
    assert block_until_ready(many) is many
    fewest = count_calls(lambda: block_until_ready(few))
    assert count_calls(lambda: block_until_ready(many)) == fewest
    gone = from_numpy(np.ones(3, np.float32))
    gone.delete()
    with pytest.raises(DeletedArrayError, match="has been deleted"):
        block_until_ready({"a": X, "b": [gone]})


def test_containers_are_returned_unchanged() -> None:
    fun = jit(lambda *args, **options: (args, options))
    plus = jit(lambda t: tree.map(lambda x: x + 1, t))
    for given in (
        X,
        (),
        [],
        {},
        None,
        (X,),
        [X, Y, None],
        {"b": X, "a": [Y, {"z": X, "c": (Y, ())}]},
    ):
        made = call_twice(plus, given)
        assert tree.structure(made) == tree.structure(given)
        pairs = zip(tree.leaves(made), tree.leaves(given), strict=True)
        assert all(np.array_equal(a, np.asarray(b) + 1) for a, b in pairs)
        assert tree.structure(call_twice(fun, given, named=given)) == tree.structure(
            ((given,), {"named": given})
        )


def test_calls_with_different_signatures_have_separate_programs() -> None:
    ran: list[object] = []

    def note(*args: Any, **options: Any) -> Any:
        ran.append((args, options))
        return tree.map(lambda x: x * 2, (args, options))

    fun = jit(note)
    mesh = make_mesh((4,), ("a",))
    spread = device_put(X, NamedSharding(mesh, P("a")))
    weak = jit(lambda: 1.0)()
    assert weak.weak_type
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((X,), {}), ((Y,), {}), (([X],), {}), (((X,),), {}), ((X, X), {}), (({"a": X},), {}),
        (({"b": X},), {}), ((), {"a": X}), ((X, None), {}), ((spread,), {}), ((weak,), {}),
        (([[X], X],), {}), (([[X, X]],), {}), (([X, [X]],), {}),
    ]  # fmt: skip
    for _ in range(3):
        for args, options in calls:
            made = fun(*args, **options)
            assert tree.structure(made) == tree.structure((args, options))
            assert tree.leaves(made)[0].signature == (
                jit(lambda x: x * 2)(tree.leaves((args, options))[0]).signature
            )
    assert len(ran) == len(calls)
    # The order of dictionary keys is irrelevant.
    fun({"a": X, "b": Y})
    assert list(fun({"b": Y, "a": X})[0][0]) == ["a", "b"]
    assert len(ran) == len(calls) + 1


def test_scalars_and_numpy_arrays_have_the_results_of_arrays() -> None:
    fun = jit(lambda x, y: x + y)
    for y in (X, 1, 1.5, np.float32(2), np.ones(4, np.float32), True):
        assert np.array_equal(call_twice(fun, X, y), np.asarray(X) + np.asarray(y))
    with pytest.raises(NotAnArrayError, match="argument y of lambda is 'text'"):
        fun(X, "text")


def test_deleted_arguments_are_errors() -> None:
    fun = jit(lambda t: t["a"] + t["b"])
    gone = from_numpy(np.ones(4, np.float32))
    call_twice(fun, {"a": X, "b": gone})
    gone.delete()
    with pytest.raises(DeletedArrayError, match=r"this array of type f32\[4\] has been deleted"):
        fun({"a": X, "b": gone})
    assert np.array_equal(fun({"a": X, "b": X}), np.asarray(X) * 2)


def test_donated_and_static_arguments_work_on_the_fast_path() -> None:
    give = jit(lambda x: x + 1, donate_argnums=0)
    for _ in range(3):
        given = X + 0
        assert np.array_equal(give(given), np.asarray(X) + 1)
        assert given.is_deleted()
    scaled = jit(lambda x, n: x * n, static_argnums=1)
    assert [float(scaled(X, n)[1]) for n in (1, 2, 1, 2, 3)] == [1, 2, 1, 2, 3]


def test_settings_meshes_and_rules_are_part_of_the_key() -> None:
    made = []

    def note(x: Any) -> Any:
        made.append(config.enable_x64)
        return x + 1

    fun = jit(note)
    mesh = make_mesh((4,), ("a",))
    for _ in range(3):
        call_twice(fun, X)
        with enable_x64():
            call_twice(fun, X)
        with mesh:
            call_twice(fun, X)
    assert made == [False, True, False]


def test_a_call_with_traced_arguments_is_traced() -> None:
    inner = jit(lambda x: x * 2)
    call_twice(inner, X)
    kept: list[Any] = []

    def outer(x: Any) -> Any:
        kept.append(x)
        return inner(x) + inner(X)

    assert np.array_equal(jit(outer)(X), np.asarray(X) * 4)
    with pytest.raises(LeakedTracerError):
        inner(kept[0])


def test_captured_arrays_are_passed_on_the_fast_path() -> None:
    big = from_numpy(np.arange(5000, dtype=np.float32))
    fun = jit(lambda x: (x + big, big * 2, x))
    a, b, c = call_twice(fun, big)
    assert np.array_equal(a, np.arange(5000) * 2)
    assert np.array_equal(b, a)
    assert np.array_equal(c, big)


@pytest.mark.parametrize("size", [3, 2000, 300_000])
def test_calls_free_memory_and_results_keep_theirs(size: int) -> None:
    gc.freeze()  # Collecting the objects of earlier tests takes seconds.
    x = from_numpy(np.arange(size, dtype=np.float32))
    fun = jit(lambda t: {"a": t["a"] + 1, "b": t["a"] * 2, "c": sd.numpy.sum(t["a"])})
    call_twice(fun, {"a": x})
    gc.collect()
    before = statistics().in_use
    for _ in range(20):
        made = fun({"a": x})
    kept = np.asarray(made["a"])
    del made
    more = [fun({"a": x}) for _ in range(3)]
    assert np.array_equal(kept, np.arange(size, dtype=np.float32) + 1)
    del kept, more
    gc.collect()
    assert statistics().in_use == before


def test_sharded_arrays_take_the_fast_path() -> None:
    mesh = make_mesh((4, 2), ("a", "b"))
    numbers = np.arange(32, dtype=np.float32).reshape(8, 4)
    x = device_put(numbers, NamedSharding(mesh, P("a", "b")))
    fun = jit(lambda x: (x + 1, sd.numpy.sum(x, 0)))
    first, second = fun(x), fun(x)
    for a, b in zip(first, second, strict=True):
        assert type(b) is Array
        assert a.sharding == b.sharding
        assert a.signature is b.signature
        assert np.array_equal(a, b)
    odd = device_put(numbers[:7], NamedSharding(mesh, P("a")), uneven="pad")
    for _ in range(2):
        assert np.array_equal(jit(lambda x: x + 1, uneven="pad")(odd), numbers[:7] + 1)


def test_arrays_of_separate_buffers_take_the_slow_path() -> None:
    mesh = make_mesh((4,), ("a",))
    sharding = NamedSharding(mesh, P("a"))
    pieces = [device_put(np.full(2, i, np.float32), d) for i, d in enumerate(devices()[:4])]
    whole = sd.make_array_from_single_device_arrays((8,), sharding, pieces)
    assert not isinstance(whole.buffers, Storage)
    fun = jit(lambda x: x + 1)
    call_twice(fun, device_put(np.zeros(8, np.float32), sharding))
    assert np.array_equal(fun(whole), np.repeat(np.arange(4), 2) + 1)


def test_threads_call_one_function_concurrently() -> None:
    fun = jit(lambda t: tree.map(lambda x: x + 1, t))
    wrong: list[object] = []

    def work(number: int) -> None:
        given = nested(3, from_numpy(np.full(4, number, np.float32)))
        for _ in range(200):
            if not all((np.asarray(x) == number + 1).all() for x in tree.leaves(fun(given))):
                wrong.append(number)

    run_concurrently(work, range(4))
    assert wrong == []


def test_a_keyword_argument_is_part_of_the_signature() -> None:
    fun = jit(lambda x, y=2.0: x * y)
    for _ in range(3):
        assert np.array_equal(fun(X), np.asarray(X) * 2)
        assert np.array_equal(fun(X, y=Y), np.asarray(X) * np.asarray(Y))
        assert np.array_equal(fun(X, y=X), np.asarray(X) * np.asarray(X))


def test_calls_with_other_arguments_have_one_entry() -> None:
    fun = jit(lambda x: x + 1)
    for _ in range(3):
        fun(np.asarray(X))
    assert len(fun._calls) == 1


def test_a_call_whose_trace_changes_the_settings_is_not_repeated() -> None:
    ran = []

    def change(x: Any) -> Any:
        ran.append(x)
        config.update("enable_x64", True)
        return x + 1

    fun, before = jit(change), config.enable_x64
    try:
        for count in (1, 2, 2, 2):
            fun(X)
            assert len(ran) == count
    finally:
        config.update("enable_x64", before)


def test_clear_cache_removes_fast_path_entries() -> None:
    ran = []

    def note(x: Any) -> Any:
        ran.append(x)
        return x + 1

    fun = jit(note)
    call_twice(fun, X)
    fun.clear_cache()
    call_twice(fun, X)
    assert len(ran) == 2
