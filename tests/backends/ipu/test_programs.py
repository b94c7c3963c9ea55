"""Programs with data movement, random numbers, loops and branches give the reference results."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import shardir as sd
import shardir.numpy as snp
from shardir import lax, random
from shardir.sharding import NamedSharding, PartitionSpec as P
from tests.backends.ipu.host_model_execution import Case, check
from tests.backends.ipu.model_steps import mesh_of, normal_array, put_on_mesh


def case_of(function: Callable[..., Any], *args: Any, **options: Any) -> Case:
    return Case.of(sd.jit(function, **options).lower(*args), args)


RESHARDS: tuple[tuple[Any, Any], ...] = (
    (("data", "model"), ("model", "data")),
    ((("data", "model"), None), (None, ("data", "model"))),
    ((None, ("model", "data")), ("data", None)),
    (("data", None), (None, "data")),
    ((("model", "data"), None), (("data", "model"), None)),
    (("model", None), ("data", None)),
    (("model", None), (None, None)),
    (("data", None), (None, None)),
)


def reshard_cases(*sizes: int) -> Iterator[tuple[str, Case]]:
    mesh = mesh_of(*sizes)
    for source, to in RESHARDS:

        def move(x: Any, to: Any = to) -> Any:
            return lax.with_sharding_constraint(x * 2, NamedSharding(mesh, P(*to)))

        yield f"{source} to {to}", case_of(move, put_on_mesh(mesh, normal_array(16, 8), *source))


def test_every_kind_of_reshard() -> None:
    check(
        {
            f"{sizes}: {name}": case
            for sizes in ((2, 2), (2, 4))
            for name, case in reshard_cases(*sizes)
        }
    )


def test_uneven_dimensions() -> None:
    mesh = mesh_of(4, names=("x",))

    def along(x: Any) -> Any:
        return x.mean(0), snp.cumsum(x, 0), snp.sort(x, 0), x[::-1], x.max(), snp.argmax(x, 0)

    def product(x: Any, w: Any) -> Any:
        return snp.tanh(x @ w).sum()

    x, w = normal_array(6, 7), normal_array(7, 5)
    check({
        "along": case_of(
            along, put_on_mesh(mesh, normal_array(5, 3), "x", uneven="pad"), uneven="pad"
        ),
        "product": case_of(
            product, put_on_mesh(mesh, x, "x", uneven="pad"),
            put_on_mesh(mesh, w, None, "x", uneven="pad"), uneven="pad",
        ),
    })  # fmt: skip


def test_random_numbers_are_bit_exact() -> None:
    mesh, key = mesh_of(2, 2), random.key(3)

    def numbers(key: Any) -> Any:
        first, second = random.split(key)
        return (
            random.bits(key, (5, 3)),
            random.uniform(first, (8,), np.float32, -3, 5),
            random.normal(second, (4, 3), np.float32),
            random.randint(random.fold_in(key, 7), (5,), 0, 100),
            random.permutation(key, 16),
            random.categorical(key, snp.zeros((4, 7), np.float32)),
            first,
        )

    def dropout(key: Any, x: Any) -> Any:
        return snp.where(random.bernoulli(key, np.float32(0.8), x.shape), x / np.float32(0.8), 0)

    check({
        "numbers": case_of(numbers, key),
        "dropout": case_of(dropout, key, put_on_mesh(mesh, normal_array(8, 8), "data", "model")),
    })  # fmt: skip


def test_random_numbers_of_mapped_keys_and_bounds() -> None:
    """Products that are rounded once are recognized although they are batched and shared by
    groups."""
    mesh = mesh_of(4, names=("x",))
    low, high = (
        put_on_mesh(mesh, normal_array(8), "x"),
        put_on_mesh(mesh, normal_array(8, seed=1) + 4, "x"),
    )

    def numbers(key: Any, low: Any, high: Any) -> Any:
        keys = random.split(key, 8)
        return (
            random.uniform(key, (8,), np.float32, low[0], high[0]),
            sd.vmap(lambda k, a, b: random.uniform(k, (3,), np.float32, a, b))(keys, low, high),
            sd.vmap(lambda k: random.normal(k, (3,), np.float32))(keys),
            sd.vmap(lambda a: random.uniform(key, (3,), np.float32, a, 9), out_axes=1)(low),
            random.truncated_normal(key, low, high, (8,)),
            lax.scan(
                lambda c, k: (c + random.normal(k, (4,), np.float32), c[0]),
                snp.zeros(4, np.float32),
                keys,
            ),
        )

    check({"numbers": case_of(numbers, random.key(2), low, high)})


def test_constants_of_every_type() -> None:
    mesh = mesh_of(4, names=("x",))

    def constants(x: Any) -> Any:
        arrays = [
            snp.array([1, 0, 3], dtype)
            for dtype in (bool, "i1", "u1", "i2", "u2", "i4", "u4", "f2", "f4")
        ]
        numbers = [snp.full((2,), array[2]) for array in arrays]
        views = snp.ones((3, 4)).T @ x[:3], snp.cumsum(snp.ones(5)), snp.roll(snp.ones(8), 1) * x.T
        loops = (
            lax.scan(lambda c, _: (c + 1, c), snp.zeros(2), None, length=3),
            lax.cond(x[0, 0] > 0, lambda: snp.ones(2), lambda: snp.zeros(2)),
        )
        pieces = (
            lax.dynamic_slice(x, (1, 9), (2, 2)),
            lax.dynamic_update_slice(x, x[:2, :2] * 2, (-1, 5)),
        )
        return arrays, numbers, views, loops, snp.inf * snp.ones(2), pieces

    check({"constants": case_of(constants, put_on_mesh(mesh, normal_array(8, 4), "x"))})


def test_hypot_of_large_and_small_numbers() -> None:
    big, small = np.float32(1e30), np.float32(1e-30)
    x = np.array([3, 0, np.inf, np.nan, big, small, -4, 0], np.float32)
    y = np.array([4, 0, np.nan, 1, big, small, 3, -2], np.float32)
    check({"pairs": case_of(snp.hypot, x, y)})


def test_loops() -> None:
    mesh = mesh_of(2, 2)
    w, xs = (
        put_on_mesh(mesh, normal_array(8, 8), None, "model"),
        put_on_mesh(mesh, normal_array(5, 4, 8), None, "data"),
    )

    def run_scan(w: Any, xs: Any) -> Any:
        def body(carry: Any, x: Any) -> Any:
            return snp.tanh(carry @ w + x), carry.sum(-1)

        return lax.scan(body, snp.zeros((4, 8), np.float32), xs)

    def gradient(w: Any, xs: Any) -> Any:
        return sd.grad(lambda w: run_scan(w, xs)[1].sum())(w)

    def until_small(x: Any) -> Any:
        return lax.while_loop(
            lambda c: (c[1] ** 2).sum() > 1e-2, lambda c: (c[0] + 1, c[1] * 0.5), (0, x)
        )

    def swap_carries(a: Any, b: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, c: (c[1], c[0] + c[1], c[2].T), (a, b, b))

    def nested_loops(x: Any) -> Any:
        def inner(i: Any, row: Any) -> Any:
            return row * 0.5 + i.astype(np.float32)

        return lax.fori_loop(0, 3, lambda i, x: lax.fori_loop(0, i, inner, x) + 1, x)

    x = put_on_mesh(mesh, normal_array(8, 4), "data", "model")
    check({
        "scan": case_of(run_scan, w, xs),
        "gradient": case_of(gradient, w, xs),
        "while": case_of(until_small, x),
        "swap": case_of(swap_carries, normal_array(4, 4), normal_array(4, 4, seed=1)),
        "nested": case_of(nested_loops, x),
    })  # fmt: skip


def test_branches() -> None:
    mesh = mesh_of(4, names=("x",))
    x = put_on_mesh(mesh, normal_array(8), "x")

    def either(p: Any, x: Any) -> Any:
        return lax.cond(p, lambda x: x * 2, lambda x: x - 1, x)

    def one_of(i: Any, x: Any) -> Any:
        return lax.switch(i, [lambda x: x * 2, lambda x: -x, lambda x: x + 1], x)

    check({
        "true": case_of(either, np.bool_(True), x),
        "false": case_of(either, np.bool_(False), x),
        **{f"case {i}": case_of(one_of, np.int32(i), x) for i in (0, 1, 2)},
    })  # fmt: skip


def test_conditions_that_differ_between_replicas() -> None:
    mesh = mesh_of(4, names=("x",))
    x = put_on_mesh(mesh, np.arange(8, dtype=np.float32), "x")

    def case(function: Callable[[Any], Any]) -> Case:
        mapped = sd.shard_map(
            function, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False
        )
        return case_of(mapped, x)

    def one_of(s: Any) -> Any:
        return lax.switch(lax.axis_index("x") % 3, [lambda v: v, lambda v: v * 10, lambda v: -v], s)

    def until(s: Any) -> Any:
        return lax.while_loop(lambda t: (t < 10).any(), lambda t: t + 1, s)

    def either(s: Any) -> Any:
        return lax.cond(s.sum() > 4, until, lambda v: v - 1, s)

    def loop_to_index(s: Any) -> Any:
        return lax.fori_loop(0, lax.axis_index("x"), lambda i, t: either(t) + i, s)

    def sum_and_scan(s: Any) -> Any:
        return lax.psum(either(s), "x") + lax.scan(lambda c, _: (one_of(c), c[0]), s, None, 3)[0]

    def keys(s: Any) -> Any:
        key = random.key(lax.axis_index("x"))
        chosen = lax.cond(s[0] > 3, lambda k: random.split(k)[1], lambda k: k, key)
        return random.uniform(chosen, (2,), np.float32) + s

    check({f.__name__: case(f) for f in (one_of, until, either, loop_to_index, sum_and_scan, keys)})


def test_convolutions_and_pooling_with_gradients() -> None:
    mesh = mesh_of(4, names=("x",))
    images, filters = put_on_mesh(mesh, normal_array(4, 8, 8, 3), "x"), normal_array(3, 3, 3, 5)

    def convolve(x: Any, w: Any) -> Any:
        made = lax.conv_general_dilated(
            x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return (made**2).sum()

    def max_pool(x: Any) -> Any:
        made = lax.reduce_window(
            x, np.float32(-np.inf), lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"
        )
        return (made**2).sum()

    check({
        "convolution": case_of(sd.value_and_grad(convolve, (0, 1)), images, filters),
        "pooling": case_of(sd.value_and_grad(max_pool), images),
    })  # fmt: skip


def test_gathers_scatters_and_sorts() -> None:
    mesh = mesh_of(4, names=("x",))
    table = put_on_mesh(mesh, normal_array(8, 4), "x")
    places = np.array([3, 3, 7, -1, 0, 5], np.int32)

    def update_rows(table: Any, places: Any, rows: Any) -> Any:
        return table.at[places].add(rows), table.at[places[:2]].set(rows[:2]), table[places]

    def order_elements(x: Any) -> Any:
        return lax.top_k(x, 3), snp.argsort(x, 1), snp.argmax(x, 1), snp.argmin(x, 0)

    check({
        "rows": case_of(update_rows, table, places, normal_array(6, 4)),
        "order": case_of(order_elements, put_on_mesh(mesh, normal_array(8, 9), "x")),
    })  # fmt: skip


def test_nan_is_propagated_where_poplibs_ignores_it() -> None:
    mesh = mesh_of(2, 2)
    x = normal_array(8, 6)
    x[1, 2] = x[5, 0] = x[7, 5] = np.nan

    def extremes(x: Any) -> Any:
        return (
            x.max(0), x.min(1), snp.maximum(x, 0), snp.clip(x, -1, 1), lax.cummax(x, 1),
            lax.cummin(x, 0), snp.argmax(x, 1), snp.argmin(x, 0), snp.sort(x, 1), lax.top_k(x, 2),
            x.max().astype(np.float16), x.astype(np.float16).min(0),
            lax.reduce_window(x, np.float32(-np.inf), lax.max, (2, 2), (2, 2), "VALID"),
            sd.grad(lambda x: lax.reduce_window(
                x, np.float32(-np.inf), lax.max, (2, 2), (2, 2), "VALID").sum())(x),
            snp.zeros((4, 6), np.float32).at[np.arange(8) // 2].max(x),
        )  # fmt: skip

    check({
        "extremes": case_of(extremes, x),
        "cut": case_of(lambda x: (x.max(0), x.min()), put_on_mesh(mesh, x, "data", "model")),
    })  # fmt: skip
