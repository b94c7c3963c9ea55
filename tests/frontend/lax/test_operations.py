"""Operations of `lax`: aliases of NumPy functions, functions that only `lax` has, and errors."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir.errors import OperationTypeError
from shardir.frontend.arrays.array import from_numpy
from shardir.frontend.lax import api as lax
from shardir.frontend.numpy import api as snp
from shardir.frontend.pytree import tree
from tests.namespace import eagerly, ops, run, same, words
from tests.optional_dependencies import require

X = np.array([[0.5, -1.25, 3.0], [2.5, 0.0, -0.75]], np.float32)
Y = np.array([[2.0, 0.5, -1.0], [1.5, 4.0, 3.0]], np.float32)
WHOLE = np.array([[5, -3, 7], [0, 2, -8]], np.int32)
BOOLS = np.array([[True, False, True], [False, False, True]])


def both(fun: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Return the result of a traced call, and check that an eager call has the same result."""
    traced = run(fun, *args, **options)
    same(tree.leaves(eagerly(fun, *args, **options)), tree.leaves(traced))
    return traced


UNARY: dict[str, Callable[[Any], Any]] = {
    "abs": np.abs, "neg": np.negative, "sign": np.sign, "floor": np.floor, "ceil": np.ceil,
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "atan": np.arctan, "asinh": np.arcsinh,
    "cbrt": np.cbrt, "is_finite": np.isfinite, "square": np.square,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
}  # fmt: skip
POSITIVE: dict[str, Callable[[Any], Any]] = {
    "log": np.log, "log1p": np.log1p, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x),
}  # fmt: skip
INSIDE: dict[str, Callable[[Any], Any]] = {
    "asin": np.arcsin, "acos": np.arccos, "atanh": np.arctanh,
}  # fmt: skip
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "atan2": np.arctan2,
    "max": np.maximum, "min": np.minimum, "rem": np.fmod, "nextafter": np.nextafter, "eq": np.equal,
    "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal,
}  # fmt: skip
BITS: dict[str, Callable[[Any, Any], Any]] = {
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
}  # fmt: skip


def test_elementwise_operations_agree_with_numpy() -> None:
    tables = ((UNARY, X), (POSITIVE, np.abs(X) + 0.1), (INSIDE, np.tanh(X)))
    for table, x in tables:
        for name, reference in table.items():
            same(both(getattr(lax, name), x), reference(x).astype(bool if name == "is_finite" else
                                                                 np.float32))  # fmt: skip
    for name, binary in BINARY.items():
        same(both(getattr(lax, name), X, Y), binary(X, Y))
    for name, binary in BITS.items():
        same(
            both(getattr(lax, name), WHOLE, WHOLE.T.reshape(2, 3)),
            binary(WHOLE, WHOLE.T.reshape(2, 3)),
        )
    same(both(lax.pow, np.abs(X), Y), np.abs(X) ** Y)
    same(both(lax.bitwise_not, WHOLE), ~WHOLE)
    same(both(lax.population_count, WHOLE.astype(np.uint8)),
         np.bitwise_count(WHOLE.astype(np.uint8)))  # fmt: skip
    same(both(lax.clz, np.array([1, 0, 255], np.uint8)), np.array([7, 8, 0], np.uint8))
    same(both(lax.shift_left, WHOLE, 2), WHOLE << 2)
    same(both(lax.shift_right_arithmetic, WHOLE, 1), WHOLE >> 1)
    same(both(lax.shift_right_logical, WHOLE, 28), (WHOLE.view(np.uint32) >> 28).view(np.int32))
    same(both(lax.div, WHOLE, 3), np.trunc(WHOLE / 3).astype(np.int32))
    z = both(lax.complex, X, Y)
    same(z, X + 1j * Y)
    for name, part in (("real", X), ("imag", Y), ("conj", X - 1j * Y)):
        same(both(getattr(lax, name), z), part.astype(z.dtype if name == "conj" else np.float32))


def test_special_functions() -> None:
    from math import erf, erfc, lgamma

    x = np.array([0.25, 0.5, 2.0], np.float32)
    for name, reference in (("erf", erf), ("erfc", erfc), ("lgamma", lgamma)):
        same(both(getattr(lax, name), x), np.array([reference(v) for v in x], np.float32))
    same(both(lambda x: lax.erf_inv(lax.erf(x)), x), x)
    same(both(lax.digamma, np.array([1.0], np.float32)), np.array([-0.57721567], np.float32))


def test_functions_have_their_public_names() -> None:
    for name in words("abs exp add mul reduce_sum argmax cumsum scatter_add gather select_n"):
        assert getattr(lax, name).__name__ == name
        assert getattr(lax, name).__doc__


def test_rounding() -> None:
    x = np.array([0.5, 1.5, -0.5, -2.5, 2.4, 0.49999997, -0.0, np.inf, np.nan, 8388609.0], "f")
    away = np.array([1, 2, -1, -3, 2, 0, -0.0, np.inf, np.nan, 8388609.0], np.float32)
    same(both(lax.round, x), away)
    same(both(lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), x), np.round(x))
    same(both(lambda x: lax.integer_pow(x, 5), X), X**5)
    same(both(lambda x: lax.integer_pow(x, -2), Y), Y**-2.0)
    same(both(lambda x: lax.integer_pow(x, 0), X), np.ones_like(X))


def test_select_and_clamp() -> None:
    same(both(lax.select, BOOLS, X, Y), np.where(BOOLS, X, Y))
    same(both(lax.select, np.array(True), X, Y), X)
    same(both(lambda p, x: lax.select(p, x, 0.0), BOOLS, X), np.where(BOOLS, X, np.float32(0)))
    same(both(lax.select_n, BOOLS, X, Y), np.where(BOOLS, Y, X))
    which = np.array([[0, 1, 2], [2, 0, 1]], np.int32)
    same(both(lax.select_n, which, X, Y, X * Y), np.choose(which, [X, Y, X * Y]))
    same(both(lambda x: lax.clamp(-1.0, x, 2.0), X), np.clip(X, -1, 2))
    same(both(lambda x, y: lax.clamp(0.0, x, y), X, np.abs(Y)), np.clip(X, 0, np.abs(Y)))
    same(both(lambda x: lax.clamp(np.float32(0), x, np.float32(1)), X), np.clip(X, 0, 1))
    assert ops(lambda x: lax.clamp(0.0, x, 1.0), X) == ["constant", "constant", "clamp"]


def test_dtype_conversions() -> None:
    same(both(lambda x: lax.convert_element_type(x, np.int32), X), X.astype(np.int32))
    same(both(lambda x: lax.bitcast_convert_type(x, np.int32), X), X.view(np.int32))
    parts = both(lambda x: lax.bitcast_convert_type(x, np.uint8), X)
    same(parts, X[..., None].view(np.uint8))
    same(both(lambda x: lax.bitcast_convert_type(x, np.float32), parts), X)
    got = both(lambda x: lax.stop_gradient({"a": x, "b": (x + 1,)}), X)
    same([got["a"], got["b"][0]], [X, X + 1])


MOVES: list[tuple[Any, Any]] = [
    (lambda x: lax.broadcast_in_dim(x, (2, 4, 3), (0, 2)), np.repeat(X[:, None], 4, 1)),
    (lambda x: lax.broadcast(x, (2,)), np.stack([X, X])),
    (lambda x: lax.reshape(x, (3, 2)), X.reshape(3, 2)),
    (lambda x: lax.reshape(x, (6,), (1, 0)), X.T.reshape(6)),
    (lambda x: lax.collapse(x, 0, 2), X.reshape(6)),
    (lambda x: lax.collapse(x[None], 1), X.reshape(1, 6)),
    (lambda x: lax.transpose(x, (1, 0)), X.T),
    (lambda x: lax.rev(x, (0, -1)), X[::-1, ::-1]),
    (lambda x: lax.expand_dims(x, (0, -1)), X[None, ..., None]),
    (lambda x: lax.squeeze(x[None], (0,)), X),
    (lambda x: lax.concatenate([x, x[:1]], 0), np.concatenate([X, X[:1]])),
    (lambda x: lax.split(x, (1, 2), 1), [X[:, :1], X[:, 1:]]),
    (lambda x: lax.pad(x, 9.0, ((1, 0, 0), (-1, 2, 1))),
     np.array([[9] * 6, [9, -1.25, 9, 3, 9, 9], [9, 0, 9, -0.75, 9, 9]], np.float32)),
    (lambda x: lax.tile(x, (2, 1)), np.tile(X, (2, 1))),
    (lambda x: lax.slice(x, (0, 1), (2, 3), (1, 2)), X[:, 1:3:2]),
    (lambda x: lax.slice(x, (1, 1), (1, 3)), X[1:1, 1:3]),
    (lambda x: lax.slice_in_dim(x, -2, None, axis=1), X[:, -2:]),
    (lambda x: lax.slice_in_dim(x, 0, 3, 2, axis=-1), X[:, ::2]),
    (lambda x: lax.index_in_dim(x, -1, 1), X[:, -1:]),
    (lambda x: lax.index_in_dim(x, 1, keepdims=False), X[1]),
    (lambda x: lax.full((2, 2), 3.5), np.full((2, 2), 3.5, np.float32)),
    (lambda x: lax.full((2,), x[0, 0]), np.full((2,), 0.5, np.float32)),
    (lambda x: lax.full((2,), 3, np.float16), np.full((2,), 3, np.float16)),
    (lambda x: lax.full_like(x, 2), np.full_like(X, 2)),
    (lambda x: lax.full_like(x, 2.5, np.int32, (3,)), np.full(3, 2, np.int32)),
    (lambda x: lax.full_like(sd.ShapeDtypeStruct((2,), np.int32), 3), np.full(2, 3, np.int32)),
    (lambda x: lax.iota(np.int32, 4), np.arange(4, dtype=np.int32)),
    (lambda x: lax.broadcasted_iota(np.uint8, (2, 3), 1), np.array([[0, 1, 2]] * 2, np.uint8)),
    (lambda x: lax.optimization_barrier((x, x + 1)), (X, X + 1)),
    (lambda x: lax.optimization_barrier([x]), [X]),
]  # fmt: skip


@pytest.mark.parametrize(("call", "expected"), MOVES)
def test_data_movement(call: Any, expected: Any) -> None:
    same(both(call, X), expected)


def at(*places: int) -> list[Any]:
    return [np.array(place, np.int32) for place in places]


def test_traced_starts() -> None:
    for i, j, expected in ((0, 1, X[:, 1:]), (5, 9, X[:, 1:]), (0, -2, X[:, 1:]), (0, 0, X[:, :2])):
        same(both(lambda x, s: lax.dynamic_slice(x, s, (2, 2)), X, at(i, j)), expected)
        same(both(lambda x, s: lax.dynamic_slice(x, s, (2, 2)), X, np.array([i, j])), expected)
    same(run(lambda x: lax.dynamic_slice(x, (0, -1), (1, 1)), X), X[:1, 2:])
    assert ops(lambda x: lax.dynamic_slice(x, (9, -1), (1, 1)), X) == ["slice"]
    same(run(lambda x: lax.dynamic_slice(x, (9, -1), (1, 2)), X), X[-1:, 1:])
    assert ops(lambda x, i: lax.dynamic_slice(x, (0, i), (2, 1)), X, np.array(1, np.uint32)) == [
        "constant", "dynamic_slice",
    ]  # fmt: skip
    same(both(lambda x, i: lax.dynamic_slice_in_dim(x, i, 2, 1), X, *at(1)), X[:, 1:])
    same(both(lambda x, i: lax.dynamic_index_in_dim(x, i, 1), X, *at(-1)), X[:, 2:])
    same(both(lambda x, i: lax.dynamic_index_in_dim(x, i, keepdims=False), X, *at(1)), X[1])
    new = np.full((2, 1), 7, np.float32)
    changed = X.copy()
    changed[:, 2:] = 7
    same(both(lambda x, u, s: lax.dynamic_update_slice(x, u, s), X, new, at(0, 9)), changed)
    same(both(lambda x, u, i: lax.dynamic_update_slice_in_dim(x, u, i, 1), X, new, *at(2)), changed)
    same(both(lambda x, u, i: lax.dynamic_update_index_in_dim(x, u, i, 1), X, new, *at(2)), changed)
    same(both(lambda x, u, i: lax.dynamic_update_index_in_dim(x, u, i, -1), X, new[:, 0], *at(2)),
         changed)  # fmt: skip


def test_reductions() -> None:
    for name, reference in (("sum", np.sum), ("prod", np.prod), ("max", np.max), ("min", np.min)):
        for axes in ((0,), (-1,), (0, 1), ()):
            same(both(lambda x, n=name, a=axes: getattr(lax, f"reduce_{n}")(x, a), X),
                 np.asarray(reference(X, axis=axes)))  # fmt: skip
    same(both(lambda x: lax.reduce_and(x, (1,)), BOOLS), BOOLS.all(1))
    same(both(lambda x: lax.reduce_or(x, (0,)), BOOLS), BOOLS.any(0))
    same(both(lambda x: lax.argmax(x, 1, np.int32), X), X.argmax(1).astype(np.int32))
    same(both(lambda x: lax.argmin(x, -2, np.uint8), X), X.argmin(0).astype(np.uint8))
    for name, ufunc in (("cumsum", np.add), ("cumprod", np.multiply), ("cummax", np.maximum),
                        ("cummin", np.minimum), ("cumlogsumexp", np.logaddexp)):  # fmt: skip
        same(both(lambda x, n=name: getattr(lax, n)(x, axis=1), X), ufunc.accumulate(X, 1))
        same(both(lambda x, n=name: getattr(lax, n)(x, 0, reverse=True), X),
             ufunc.accumulate(X[::-1])[::-1])  # fmt: skip


def test_sorting() -> None:
    same(both(lax.sort, X), np.sort(X))
    same(both(lambda x: lax.sort(x, 0), X), np.sort(X, 0))
    order = np.argsort(X, kind="stable")
    keys, values = both(lambda x, w: lax.sort_key_val(x, w), X, WHOLE)
    same([keys, values], [np.sort(X), np.take_along_axis(WHOLE, order, 1)])
    (only,) = both(lambda x: lax.sort((x,)), X)
    same(only, np.sort(X))
    first, second = both(lambda b, x: lax.sort((b, x), num_keys=2), WHOLE // 4, X)
    order = np.lexsort([X, WHOLE // 4])
    same([first, second], [np.take_along_axis(a, order, 1) for a in (WHOLE // 4, X)])
    values, places = both(lambda x: lax.top_k(x, 2), X)
    same(values, -np.sort(-X)[:, :2])
    same(places, np.argsort(-X, kind="stable")[:, :2].astype(np.int32))
    same(both(lambda x: lax.top_k(x, 1, axis=0), X)[0], X.max(0, keepdims=True))


def test_contractions() -> None:
    a = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    b = np.arange(40, dtype=np.float32).reshape(2, 4, 5)
    same(both(lambda a, b: lax.dot_general(a, b, (((2,), (1,)), ((0,), (0,)))), a, b), a @ b)
    same(both(lax.batch_matmul, a, b), a @ b)
    same(both(lambda a, b: lax.dot_general(a, b, (((0, 2), (0, 1)), ((), ()))), a, b),
         np.einsum("bik,bkj->ij", a, b))  # fmt: skip
    same(both(lax.dot, X, Y.T.copy()), X @ Y.T)
    same(both(lax.dot, X[0], Y[0]), X[0] @ Y[0])
    half = X.astype(np.float16)
    wide = both(lambda x, y: lax.dot(x, y, preferred_element_type=np.float32), half, half.T.copy())
    same(wide, half.astype("f") @ half.T.astype("f"))
    same(both(lambda x, y: lax.dot(x, y, precision=lax.Precision.HIGHEST), X, Y.T.copy()), X @ Y.T)


def convolved(x: Any, w: Any, stride: int, pads: tuple[int, int]) -> Any:
    """One-dimensional, batch-feature-spatial by out-in-spatial."""
    x = np.pad(x, ((0, 0), (0, 0), pads))
    size = (x.shape[2] - w.shape[2]) // stride + 1
    found = [np.einsum("bik,oik->bo", x[:, :, stride * i : stride * i + w.shape[2]], w)
             for i in range(size)]  # fmt: skip
    return np.stack(found, -1)


def test_convolutions() -> None:
    x = np.arange(42, dtype=np.float32).reshape(2, 3, 7) % 5
    w = np.arange(24, dtype=np.float32).reshape(4, 3, 2) % 7 - 3
    same(both(lambda x, w: lax.conv(x, w, (1,), "VALID"), x, w), convolved(x, w, 1, (0, 0)))
    same(both(lambda x, w: lax.conv(x, w, (2,), "SAME"), x, w), convolved(x, w, 2, (0, 1)))
    same(both(lambda x, w: lax.conv(x, w, (2,), "SAME_LOWER"), x, w), convolved(x, w, 2, (1, 0)))
    same(both(lambda x, w: lax.conv_general_dilated(x, w, (1,), [(2, 1)]), x, w),
         convolved(x, w, 1, (2, 1)))  # fmt: skip
    named = both(
        lambda x, w: lax.conv_general_dilated(
            x, w, (1,), "VALID", dimension_numbers=("NWC", "WIO", "NWC")
        ),
        x.transpose(0, 2, 1).copy(), w.transpose(2, 1, 0).copy(),
    )  # fmt: skip
    same(named, convolved(x, w, 1, (0, 0)).transpose(0, 2, 1))
    spread = np.zeros((4, 3, 3), np.float32)
    spread[..., ::2] = w
    same(both(lambda x, w: lax.conv_with_general_padding(x, w, (1,), "VALID", (1,), (2,)), x, w),
         convolved(x, spread, 1, (0, 0)))  # fmt: skip
    grouped = both(
        lambda x, w: lax.conv_general_dilated(x, w, (1,), "VALID", feature_group_count=3),
        x, w[:3, :1].copy(),
    )  # fmt: skip
    same(grouped, np.concatenate([convolved(x[:, i : i + 1], w[i : i + 1, :1], 1, (0, 0))
                                  for i in range(3)], 1))  # fmt: skip
    numbers = lax.conv_dimension_numbers((1, 8, 8, 3), (3, 3, 3, 4), ("NHWC", "HWIO", "NHWC"))
    assert numbers == ((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
    assert lax.padtype_to_pads((7,), (2,), (2,), "SAME") == [(0, 1)]


def test_windows() -> None:
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    same(both(lambda x: lax.reduce_window(x, -np.inf, lax.max, (2, 2), (2, 2), "VALID"), x),
         x.reshape(2, 2, 2, 2).max((1, 3)))  # fmt: skip
    same(both(lambda x: lax.reduce_window(x, 0.0, lambda a, b: a + b, (1, 3), (1, 1), "SAME"), x),
         np.stack([np.convolve(row, np.ones(3, "f"), "same") for row in x]))  # fmt: skip
    low = int(np.iinfo(np.int32).min)
    same(both(lambda x: lax.reduce_window(x, low, snp.maximum, (1, 2), (1, 1), "VALID"), WHOLE),
         np.maximum(WHOLE[:, 1:], WHOLE[:, :-1]))  # fmt: skip
    same(both(lambda x: lax.reduce(x, 10.0, lax.add, (0,)), x), 10 + x.sum(0))
    same(both(lambda x: lax.reduce(x, 5.0, snp.maximum, (0, 1)), x), np.float32(15))
    same(both(lambda x: lax.reduce(x, False, lax.bitwise_or, (1,)), BOOLS), BOOLS.any(1))


def test_gather() -> None:
    x = np.arange(20, dtype=np.float32).reshape(4, 5)
    numbers = lax.GatherDimensionNumbers((1,), (0,), (0,))
    rows = np.array([[2], [7], [-1], [0]], np.int32)
    got = both(lambda x, i: lax.gather(x, i, numbers, (1, 5), mode="fill"), x, rows)
    same(got, np.stack([x[2], np.full(5, np.nan, "f"), np.full(5, np.nan, "f"), x[0]]))
    for mode in (None, "clip", "promise_in_bounds"):
        got = both(lambda x, i, mode=mode: lax.gather(x, i, numbers, (1, 5), mode=mode), x, rows)
        same(got, x[[2, 3, 0, 0]])
    boxes = lax.GatherDimensionNumbers((1, 2), (), (0, 1))
    starts = np.array([[1, 2], [3, 3]], np.int32)
    got = both(lambda x, i: lax.gather(x, i, boxes, (2, 2), mode="fill", fill_value=-1), x, starts)
    same(got, np.stack([x[1:3, 2:4], np.full((2, 2), -1, "f")]))
    got = both(lambda x, i: lax.gather(x, i, boxes, (2, 2), mode=lax.GatherScatterMode.CLIP), x,
               starts)  # fmt: skip
    same(got, np.stack([x[1:3, 2:4], x[2:4, 3:5]]))
    paired = lax.GatherDimensionNumbers((), (1,), (1,), (0,), (0,))
    one = np.array([[4], [0], [1], [3]], np.int32)
    got = both(lambda x, i: lax.gather(x, i, paired, (1, 1)), x, one)
    same(got, x[np.arange(4), one[:, 0]])


def test_scatter() -> None:
    x = np.arange(20, dtype=np.float32).reshape(4, 5)
    numbers = lax.ScatterDimensionNumbers((1,), (0,), (0,))
    rows = np.array([[2], [7], [2]], np.int32)
    new = np.arange(15, dtype=np.float32).reshape(3, 5) - 6
    for name, ufunc in (("add", np.add), ("mul", np.multiply), ("min", np.minimum),
                        ("max", np.maximum)):  # fmt: skip
        changed = x.copy()
        ufunc.at(changed, [2, 2], new[[0, 2]])
        scatter = getattr(lax, f"scatter_{name}")
        same(both(lambda x, i, u, f=scatter: f(x, i, u, numbers), x, rows, new), changed)
    changed = x.copy()
    changed[[2, 3]] = new[:2]
    same(both(lambda x, i, u: lax.scatter(x, i, u, numbers, mode="clip"), x, rows[:2], new[:2]),
         changed)  # fmt: skip
    boxes = lax.ScatterDimensionNumbers((1, 2), (), (0, 1))
    starts = np.array([[1, 2], [3, 3]], np.int32)
    box = np.full((2, 2, 2), 9, np.float32)
    changed = x.copy()
    changed[1:3, 2:4] = 9
    # The second window is partly out of bounds, so that none of it is written.
    same(both(lambda x, i, u: lax.scatter(x, i, u, boxes), x, starts, box), changed)
    changed[2:4, 3:5] = 9
    same(both(lambda x, i, u: lax.scatter(x, i, u, boxes, mode="clip"), x, starts, box), changed)


def test_weak_types_are_kept() -> None:
    calls: list[Callable[[Any], Any]] = [
        lambda x: lax.add(x, 1.0), lambda x: lax.exp(x), lambda x: lax.round(x),
        lambda x: lax.broadcast(x, (2,)), lambda x: lax.clamp(0.0, x, 1.0),
    ]  # fmt: skip
    for call in calls:
        assert call(snp.asarray(0.5)).weak_type
        assert not call(from_numpy(X)).weak_type


@pytest.mark.parametrize("kind", ["int8", "int32", "uint16"])
def test_powers_have_exponents_of_any_integer_type(kind: str) -> None:
    x, y = np.array([2.0, -3.0], "float32"), np.array([3, 2], kind)
    result = lax.pow(x, y)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, [8.0, 9.0])
    np.testing.assert_allclose(sd.grad(lambda x: lax.pow(x, y).sum())(x), [12.0, -6.0])
    assert lax.pow(x.astype("complex64"), y).dtype == np.complex64
    with pytest.raises(OperationTypeError, match=r"lax\.pow takes operands of one element type"):
        lax.pow(y, x)


def test_products_of_bools_are_those_of_jax() -> None:
    require("jax")
    import jax

    from shardir.interop.jax import from_jax

    x = np.array([[True, False, True], [False, False, True]])
    dims = (((1,), (0,)), ((), ()))
    for function, theirs in ((lax.dot, jax.lax.dot), (snp.dot, jax.numpy.dot)):
        np.testing.assert_array_equal(function(x, x.T), theirs(x, x.T))
    for dtype in (np.bool_, np.int32, np.float32):
        np.testing.assert_array_equal(
            snp.dot(x, x.T, preferred_element_type=dtype),
            jax.numpy.dot(x, x.T, preferred_element_type=dtype),
        )
        for subscripts, operands in (("ij,kj->ik", (x, x)), ("ij->i", (x,))):
            np.testing.assert_array_equal(
                snp.einsum(subscripts, *operands, preferred_element_type=dtype),
                jax.numpy.einsum(subscripts, *operands, preferred_element_type=dtype),
            )
        found = lax.dot_general(x, x.T, dims, preferred_element_type=dtype)
        expected = jax.lax.dot_general(x, x.T, dims, preferred_element_type=dtype)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    converted = from_jax(lambda x: jax.numpy.matmul(x, x.T))
    np.testing.assert_array_equal(converted(x), jax.numpy.matmul(x, x.T))
