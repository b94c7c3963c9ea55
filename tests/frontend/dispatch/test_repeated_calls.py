"""Repeated calls whose cache keys are almost equal: each returns what a first call returns."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.frontend.arrays.array import from_numpy
from shardir.frontend.config import config
from shardir.frontend.dispatch.jit import jit
from shardir.frontend.pytree import tree
from shardir.frontend.transforms.grad import grad
from shardir.sharding import NamedSharding, PartitionSpec as P

REPEATS = 3
M = np.arange(6, dtype=np.float32).reshape(2, 3)
X, Y, Z = (from_numpy(M + k) for k in (0, 10, 30))
NX, NY, NZ = (M + k for k in (np.float32(0), np.float32(10), np.float32(30)))

subtract = jit(lambda a, b, c=0.0: a - 2 * b + 3 * c)
subtract_entries = jit(lambda d: d["a"] - 2 * d["b"])


def check(call: Callable[[], object], expected: Any) -> None:
    """Check the result of a call and of its repetitions."""
    for _ in range(REPEATS):
        np.testing.assert_array_equal(np.asarray(call()), expected)


def test_keyword_arguments_follow_their_names_in_any_order() -> None:
    check(lambda: subtract(b=2.0, a=7.0), 3)
    check(lambda: subtract(b=NX, a=NX), -M)
    check(lambda: subtract(b=NX, a=NY), NY - 2 * NX)
    check(lambda: subtract(b=X, a=X), -M)
    check(lambda: subtract(b=X, a=Y), NY - 2 * NX)
    check(lambda: subtract(b=2.0, a=X), M - 4)
    check(lambda: subtract(c=NX, b=NX, a=NY), NY + NX)
    check(lambda: subtract(c=NX, b=NY, a=NZ), NZ - 2 * NY + 3 * NX)
    check(lambda: subtract(c=X, b=X, a=Y), NY + NX)
    check(lambda: subtract(c=X, b=Y, a=Z), NZ - 2 * NY + 3 * NX)


def test_entries_of_dictionaries_follow_their_keys_in_any_order() -> None:
    check(lambda: subtract_entries({"b": NX, "a": NX}), -M)
    check(lambda: subtract_entries({"b": NX, "a": NY}), NY - 2 * NX)
    check(lambda: subtract_entries({"b": X, "a": X}), -M)
    check(lambda: subtract_entries({"b": X, "a": Y}), NY - 2 * NX)


def test_the_axis_of_an_eager_call_is_part_of_its_key() -> None:
    shapes = (5, 7), (5, 7, 2), (7, 5)
    by_name, by_position, without = (
        from_numpy(np.arange(np.prod(shape), dtype=np.float32).reshape(shape)) for shape in shapes
    )
    check(lambda: snp.sum(by_name, axis=0), np.asarray(by_name).sum(0))
    check(lambda: snp.sum(by_name), np.asarray(by_name).sum())
    check(lambda: snp.sum(by_position, 0), np.asarray(by_position).sum(0))
    check(lambda: snp.sum(by_position), np.asarray(by_position).sum())
    check(lambda: snp.sum(without), np.asarray(without).sum())
    check(lambda: snp.sum(without, axis=0), np.asarray(without).sum(0))


def test_a_static_numpy_array_is_not_converted() -> None:
    check(lambda: snp.reshape(X, np.array([3, 2])), M.reshape(3, 2))
    check(lambda: snp.reshape(NX, np.array([6])), M.reshape(6))


@pytest.mark.parametrize("asarray", [from_numpy, np.asarray], ids=["array", "numpy"])
def test_elements_that_determine_the_program_are_part_of_the_call(asarray: Any) -> None:
    for counts in ([1, 2, 3], [3, 2, 1], [2, 2, 2]):
        given = asarray(np.array(counts, np.int32))
        check(partial(snp.repeat, X, given, axis=1), M.repeat(counts, 1))


def test_nested_results_have_their_structure() -> None:
    for f in (
        lambda x: ((x, x + 1), x + 2),
        lambda x: [x, (x + 1,), [x + 2]],
        lambda x: {"b": x, "a": x + 1},
    ):
        fun, expected = jit(f), f(M)
        for _ in range(REPEATS):
            made = fun(X)
            assert tree.structure(made) == tree.structure(expected)
            for one, other in zip(tree.leaves(made), tree.leaves(expected), strict=True):
                assert np.array_equal(one, other)


def test_integers_beyond_32_bits_are_part_of_the_call() -> None:
    def replace_all(number: int) -> Any:
        return snp.where(X < 0, X, number)

    for number in (2**40, 2**41, 3):
        check(partial(snp.full, (2,), number, snp.float32), [number] * 2)
        check(partial(replace_all, number), np.full((2, 3), number))


def test_complex_numbers_are_arguments() -> None:
    fun = jit(lambda x, y: x * y)
    check(lambda: fun(X, 2j), M * 2j)
    check(lambda: fun(X, 3j), M * 3j)
    check(lambda: fun(X, 3.0), M * 3)


def test_a_program_traced_under_changed_settings_is_not_repeated_with_them() -> None:
    before = config.explicit_sharding
    ran: list[object] = []

    def change(x: Any) -> Any:
        ran.append(x)
        config.update("explicit_sharding", "lenient")
        return x + 1

    fun = jit(change)
    try:
        fun(X)
        fun(X)
        assert len(ran) == 2
    finally:
        config.update("explicit_sharding", before)


def test_views_of_numpy_arrays_do_not_share_memory() -> None:
    given = M.copy()
    fun = jit(lambda x: x.reshape(3, 2))
    results = [f(given) for f in (fun, lambda x: snp.reshape(x, (3, 2))) for _ in range(REPEATS)]
    given[:] = 100
    for made in results:
        assert np.array_equal(made, M.reshape(3, 2))


def test_results_that_are_sharded_arguments_do_not_share_memory_with_numpy() -> None:
    rows = NamedSharding(sd.make_mesh((2,), ("d",)), P("d"))
    fun = jit(lambda x: x, in_shardings=rows, out_shardings=rows)
    given = M.copy()
    results = [fun(given) for _ in range(REPEATS)]
    given[:] = 100
    for made in results:
        assert np.array_equal(made, M)


def test_donated_arguments_of_views_give_the_view() -> None:
    fun = jit(lambda x: x.reshape(3, 2), donate_argnums=0)
    for _ in range(REPEATS):
        given = from_numpy(M.copy())
        assert np.array_equal(fun(given), M.reshape(3, 2))


def test_captured_arrays_of_views_are_not_arguments() -> None:
    fun = jit(lambda x: (x.reshape(3, 2), Y.reshape(6)))
    for _ in range(REPEATS):
        one, other = fun(X)
        assert np.array_equal(one, M.reshape(3, 2))
        assert np.array_equal(other, NY.reshape(6))


@pytest.mark.parametrize("kind", [np.asarray, snp.asarray])
def test_arguments_that_were_equal_in_the_first_call_keep_their_names(kind: Any) -> None:
    def difference(a: Any, b: Any) -> Any:
        return a - b

    high, low = kind(np.full(3, 5, np.float32)), kind(np.full(3, 2, np.float32))
    f, g = jit(difference), jit(lambda t: difference(**t))
    for first, second in 4 * [(low, low)] + [(high, low), (low, high)]:
        expected = np.asarray(first) - np.asarray(second)
        np.testing.assert_array_equal(f(b=second, a=first), expected)
        np.testing.assert_array_equal(g({"b": second, "a": first}), expected)
        clipped = snp.clip(high * 2, max=first, min=second)
        np.testing.assert_array_equal(clipped, first)


def test_bytes_of_bool_arrays_other_than_one_are_true() -> None:
    x = np.frombuffer(b"\x00\x02\x01\xff", np.bool_)
    expected = np.array([False, True, True, True])
    functions: list[Any] = [
        lambda x: x,
        lambda x: x & x,
        lambda x: x.reshape(2, 2),
        lambda x: x | False,
        lambda x: snp.concatenate([x, x]),
        lambda x: snp.flip(x).astype(snp.uint8),
    ]
    calls: list[Any] = [*map(jit, functions), snp.logical_not, snp.sum, snp.ravel, snp.asarray]
    for call in 4 * calls:
        assert np.asarray(call(x)).tobytes() == np.asarray(call(expected)).tobytes()


def test_negative_static_positions_count_from_the_end_of_each_call() -> None:
    fun = jit(lambda *args: args[0] * float(args[-1]), static_argnums=-1)
    for number in (2, "3", 4.0, "5", 2):
        check(partial(fun, X, number), M * float(number))
        check(partial(fun, X, Y, number), M * float(number))
        check(partial(fun, X, 7, number), M * float(number))


def test_functions_of_the_user_are_called_again() -> None:
    state = [1.0]

    def scale(x: Any) -> Any:
        return x * state[0]

    for state[0] in (1.0, 2.0, 3.0, 0.0, -0.0):
        made = snp.apply_along_axis(scale, 0, np.ones((2, 3), np.float32))
        np.testing.assert_array_equal(made, np.full((2, 3), state[0]))
        np.testing.assert_array_equal(np.signbit(made), np.signbit(np.full((2, 3), state[0])))


def test_arguments_without_tangents_are_zeros() -> None:
    tangents = grad(lambda x, n: x * n, argnums=(0, 1), allow_int=True)(2.0, 3)
    f = jit(lambda tangents: tangents[0] * 2)
    for _ in range(3):
        assert f(tangents) == 6
