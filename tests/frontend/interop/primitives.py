"""Small JAX programs that together use every primitive with a rule.

`PROGRAMS` has entries (name, function, arguments); `test_primitives.py` compares their results.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.experimental.shard_alike
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import primitives
from jax.extend.random import threefry_2x32

RNG = np.random.default_rng(1)


class Program(NamedTuple):
    """A function, its arguments, and whether it has a gradient with respect to all of its
    floats.
    """

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    smooth: bool = True


def draw(*shape: int) -> Any:
    return RNG.uniform(0.2, 0.9, shape).astype("float32")


def whole(*shape: int, high: int = 7) -> Any:
    return RNG.integers(1, high, shape).astype("int32")


X, Y, Z = draw(4, 6), draw(4, 6), draw(6, 3)
K, L = whole(4, 6), whole(4, 6)
U = K.astype("uint32")
C = (draw(4, 6) + 1j * draw(4, 6)).astype("complex64")
S = (lambda a: a @ a.T + 3 * np.eye(4, dtype="float32"))(draw(4, 4))
PROGRAMS: list[Program] = []


def shifted(function: Callable[..., Any], by: float) -> Callable[..., Any]:
    return lambda x: function(x + by)


def along(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return lambda x: function(x, 1, **options)


def program(name: str, function: Callable[..., Any], *args: Any, smooth: bool = True) -> None:
    PROGRAMS.append(Program(name, function, args, smooth))


for _name in [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "cbrt",
    "ceil",
    "cos",
    "cosh",
    "digamma",
    "erf",
    "erf_inv",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "lgamma",
    "log",
    "log1p",
    "logistic",
    "neg",
    "rsqrt",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "bessel_i0e",
    "bessel_i1e",
]:
    _shift = 1.0 if _name == "acosh" else 0.0
    program(_name, shifted(getattr(lax, _name), _shift), X, smooth=not _name.startswith("bessel"))
for _name in ["add", "atan2", "div", "max", "min", "mul", "nextafter", "pow", "rem", "sub"]:
    program(_name, getattr(lax, _name), X, Y, smooth=_name != "nextafter")
for _name in ["eq", "ge", "gt", "le", "lt", "ne"]:
    program(_name, getattr(lax, _name), K, L)
for _name in ["bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right_logical"]:
    program(_name, getattr(lax, _name), K, L)
for _name in ["bitwise_not", "clz", "population_count"]:
    program(_name, getattr(lax, _name), U)
for _name in ["real", "imag", "conj"]:
    program(_name, getattr(lax, _name), C)
program("complex", lax.complex, X, Y)
program("is_finite", lax.is_finite, np.array([1, np.inf, np.nan], "float32"))
program("shift_right_arithmetic", lax.shift_right_arithmetic, -K, L)
program("integer_pow", lambda x: x**3 + x**-2, X)
program("pow by whole numbers", lambda x, i: lax.pow(x, i), X, K)
program("integer division", lambda i, j: (i // j, i % j, lax.div(-i, j), lax.rem(-i, j)), K, L)
program("round", lambda x: (jnp.round(x * 10), lax.round(x * 10)), X, smooth=False)
program("convert", lambda x: (x.astype(jnp.int32), x.astype(jnp.bfloat16)), X, smooth=False)
program("bitcast", lambda x: lax.bitcast_convert_type(x, jnp.uint32), X, smooth=False)
program("reduce_precision", lambda x: lax.reduce_precision(x, 5, 3), X, smooth=False)
program("select", lambda x, y: jnp.where(x > y, x, 2.0), X, Y)
program("select_n of three", lambda i, x: lax.select_n(i % 3, x, x * 2, x * 3), K, X)
program("clamp", lambda x: jnp.clip(x, 0.3, 0.6), X)
program("clip by arrays", lambda x, y: lax.clamp(y * 0.5, x, y), X, Y)
program("stop_gradient", lambda x: lax.stop_gradient(x) * x, X)
program("weak numbers", lambda x: x * 2 + jnp.sum(jnp.arange(3)), X)
program("igamma", lambda x, y: (lax.igamma(x, y), lax.igammac(x, y)), X, Y, smooth=False)
program("betainc", lambda x, y: lax.betainc(x, y, x), X, Y, smooth=False)
program(
    "zeta and polygamma", lambda x: (lax.zeta(x + 2, x), lax.polygamma(1.0, x)), X, smooth=False
)

program("broadcast", lambda x: jnp.broadcast_to(x, (2, 4, 6)), X)
program("reshape", lambda x: x.reshape(3, 8), X)
program("squeeze", lambda x: jnp.squeeze(x[:1]), X)
program("transpose", lambda x: x.T, X)
program("rev", lambda x: x[::-1, ::-1], X)
program("concatenate", lambda x, y: jnp.concatenate([x, y], 1), X, Y)
program("stack", lambda x, y: jnp.stack([x, y], 1), X, Y)
program("split", lambda x: jnp.split(x, [1, 3], 1), X)
program("tile", lambda x: jnp.tile(x, (2, 3)), X)
program("pad", lambda x: lax.pad(x, 0.5, ((1, -1, 0), (0, 2, 1))), X)
program("slice", lambda x: x[1:3, ::2], X)
program("iota", lambda x: x + jnp.arange(6) + lax.broadcasted_iota(jnp.int32, (4, 6), 0), X)
program("dynamic_slice", lambda x, i: lax.dynamic_slice(x, (i[0, 0] % 3, 1), (2, 3)), X, K)
program(
    "dynamic_update_slice",
    lambda x, y, i: lax.dynamic_update_slice(x, y[:2, :2], (i[0, 0], 1)),
    X,
    Y,
    K,
)
for _name in ["sum", "prod", "max", "min"]:
    program(f"reduce_{_name}", along(getattr(jnp, _name)), X)
program("reduce_and, or", lambda i: (jnp.all(i > 2, 0), jnp.any(i > 5)), K)
program("reduce_xor", lambda i: lax.reduce_xor(i, (0,)), K)
program(
    "reduce",
    lambda x: lax.reduce(x, np.float32(0), lambda a, b: a + 2 * b - b, (1,)),
    X,
    smooth=False,
)
program("argmax, argmin", lambda x: (jnp.argmax(x, 1), jnp.argmin(x)), X)
for _name in ["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"]:
    program(_name, along(getattr(lax, _name), reverse=True), X)
program("sort", lambda x, i: (jnp.sort(x), lax.sort((i, x), num_keys=1), jnp.argsort(x, 0)), X, K)
program("top_k", lambda x: lax.top_k(x, 3), X)
program("dot_general", lambda x, z: (x @ z, jnp.einsum("ab,ab->a", x, x)), X, Z)
program(
    "dot of narrow types",
    lambda x, z: x.astype(jnp.bfloat16) @ z.astype(jnp.bfloat16),
    X,
    Z,
    smooth=False,
)
program(
    "fft",
    lambda x: (jnp.fft.rfft(x), jnp.fft.irfft(jnp.fft.rfft(x)), jnp.fft.fft2(x)),
    X,
    smooth=False,
)

program("indexing", lambda x, i: x[i[0] % 4, 2], X, K)
program("take", lambda x, i: (jnp.take(x, i, 0), jnp.take(x, i, 1, mode="clip")), X, K)
program("take_along_axis", lambda x, i: jnp.take_along_axis(x, i % 6, 1), X, K)
program("gather out of range", lambda x, i: x.at[i, 0].get(mode="fill", fill_value=7.0), X, K)
program("scatter", lambda x, i: x.at[i[0] % 4].set(1.5), X, K)
program("scatter-add", lambda x, y, i: x.at[i % 4].add(y[0]), X, Y, K)
program("scatter-mul", lambda x, i: x.at[jnp.arange(3)].multiply(2.0), X, K, smooth=False)
program(
    "scatter-min, max",
    lambda x, i: (x.at[i % 4].min(0.5), x.at[i % 4].max(0.5)),
    X,
    K,
    smooth=False,
)
program("segment_sum", lambda x, i: jax.ops.segment_sum(x, i[:, 0] % 3, 3), X, K)
program("one_hot", lambda i: jax.nn.one_hot(i, 8), K)

IMAGE, FILTER = draw(2, 8, 8, 3), draw(3, 3, 3, 4)
NHWC = ("NHWC", "HWIO", "NHWC")
program(
    "convolution",
    lambda x, w: lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=NHWC),
    IMAGE,
    FILTER,
)
program(
    "convolution in groups",
    lambda x, w: lax.conv_general_dilated(
        x,
        w,
        (1, 1),
        ((1, 1), (0, 2)),
        rhs_dilation=(1, 2),
        dimension_numbers=NHWC,
        feature_group_count=3,
    ),
    IMAGE,
    draw(3, 2, 1, 6),
)
program(
    "convolution, transposed", lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME"), IMAGE, FILTER
)
program(
    "min pool",
    lambda x: lax.reduce_window(x, jnp.inf, lax.min, (1, 3, 3, 1), (1, 2, 2, 1), "VALID"),
    IMAGE,
)
program(
    "sum pool",
    lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 1, 1, 1), "SAME"),
    IMAGE,
)


def pooled(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME")


program("max pool", pooled, IMAGE)
program("gradient of a max pool", jax.grad(lambda x: jnp.sum(pooled(x) ** 2)), IMAGE, smooth=False)
program("tangents of a max pool", lambda x: jax.jvp(pooled, (x,), (x * 2,))[1], IMAGE, smooth=False)

program("jit", lambda x: jax.jit(lambda y: jnp.sin(y) + 1)(x), X)
program("scan", lambda x: lax.scan(lambda c, v: (c * v + 1, c - v), x[0], x), X)
program(
    "scan, reversed", lambda x: lax.scan(lambda c, v: (c * v, None), x[0], x, reverse=True)[0], X
)
program(
    "while",
    lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, x)),
    X,
    smooth=False,
)
program("fori_loop", lambda x: lax.fori_loop(0, 3, lambda i, c: c * 0.5 + i, x), X)
program("map", lambda x: lax.map(lambda row: jnp.sum(row) * row, x), X)
program("cond", lambda x, i: lax.cond(i[0, 0] > 3, jnp.sin, jnp.cos, x), X, K)
program("switch", lambda x, i: lax.switch(i[0, 0] % 3, [jnp.sin, jnp.cos, lambda y: y], x), X, K)
program("associative_scan", lambda x: lax.associative_scan(jnp.multiply, x, axis=1), X)
program("checkpoint", lambda x: jax.checkpoint(lambda y: jnp.sin(jnp.sin(y)))(x), X)
program(
    "gradient of a checkpoint",
    jax.grad(lambda x: jnp.sum(jax.checkpoint(lambda y: jnp.sin(jnp.sin(y)))(x))),
    X,
)
program("optimization_barrier", lambda x: lax.optimization_barrier((x, x + 1)), X)
program("platform", lambda x: lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos), X)
program("custom_jvp", lambda x: (jax.nn.relu(x - 0.5), jax.nn.relu6(x), jax.nn.silu(x)), X)
program(
    "logsumexp", lambda x: (jax.nn.logsumexp(x, 1), jax.nn.softmax(x), jax.nn.log_softmax(x)), X
)

program("cholesky", lambda s: jnp.linalg.cholesky(s), S)
program("solve", lambda s, x: jnp.linalg.solve(s, x), S, X)
program("eigh", lambda s: jnp.linalg.eigh(s)[0], S)
program("svd", lambda x: jnp.linalg.svd(x, compute_uv=False), X)
program(
    "svd with vectors",
    lambda x: (lambda u, s, v: (u * s) @ v)(*jnp.linalg.svd(x, full_matrices=False)),
    X,
)
program("qr", lambda s: (lambda q, r: q @ r)(*jnp.linalg.qr(s)), S)
program(
    "inv and det", lambda s: (jnp.linalg.inv(s), jnp.linalg.det(s), jnp.linalg.slogdet(s)[1]), S
)
program("triangular_solve", lambda s, x: jax.scipy.linalg.solve_triangular(s, x, lower=True), S, X)
program("eig", lambda x: jnp.sort(jnp.abs(jnp.linalg.eigvals(x[:4, :4]))), X, smooth=False)

KEY = np.array([3, 4], np.uint32)
program(
    "random",
    lambda k: (jax.random.normal(k, (5,)), jax.random.uniform(jax.random.split(k)[1], (3, 2))),
    KEY,
    smooth=False,
)
program(
    "random keys", lambda s: jax.random.key_data(jax.random.fold_in(jax.random.key(s[0, 0]), 7)), K
)
program(
    "random integers",
    lambda k: (jax.random.randint(k, (5,), 0, 9), jax.random.bits(k, (3,), "uint8")),
    KEY,
)
program(
    "random keys of a batch",
    lambda k: jax.vmap(lambda one: jax.random.bernoulli(one, 0.3, (4,)))(jax.random.split(k, 3)),
    KEY,
)
program(
    "permutation and choice",
    lambda k: (jax.random.permutation(k, 8), jax.random.categorical(k, jnp.ones((3, 5)))),
    KEY,
)
program(
    "truncated_normal", lambda k: jax.random.truncated_normal(k, -1.0, 1.0, (6,)), KEY, smooth=False
)
program(
    "dropout", lambda k, x: jnp.where(jax.random.bernoulli(k, 0.5, x.shape), x / 0.5, 0), KEY, X
)
program("gamma", lambda k: jax.random.gamma(k, 1.5, (3,)), KEY, smooth=False)

program("percentile", lambda x: (jnp.percentile(x, 30), jnp.median(x, 0)), X)
program("interp", lambda x, y: jnp.interp(x, jnp.sort(y[0]), jnp.arange(6.0)), X, Y)
program("unique of a size", lambda i: jnp.unique(i, size=5), K)
program("nonzero of a size", lambda i: jnp.nonzero(i[0] > 2, size=4, fill_value=0), K)
program("searchsorted", lambda x, y: jnp.searchsorted(jnp.sort(x[0]), y), X, Y, smooth=False)
program("histogram", lambda x: jnp.histogram(x, bins=4)[0], X, smooth=False)
program("var and norm", lambda x: (jnp.var(x, 1), jnp.linalg.norm(x), jnp.std(x)), X)
program("roll and diff", lambda x: (jnp.roll(x, 2, 1), jnp.diff(x), jnp.flip(x)), X)
program(
    "tril and outer", lambda x: (jnp.tril(x), jnp.outer(x[0], x[1]), jnp.kron(x[:2, :2], x[:2])), X
)

program(
    "a mapped loop",
    lambda x: jax.vmap(lambda v: lax.while_loop(lambda c: c.sum() < 3, lambda c: c + 1.0, v))(x),
    X,
    smooth=False,
)
program(
    "sums along a batch",
    lambda x: jax.vmap(
        lambda v: (lax.psum(v, "b"), lax.pmax(v, "b"), v - lax.pmean(v, "b")), axis_name="b"
    )(x),
    X,
    smooth=False,
)
program(
    "rows in groups",
    lambda x, w, i: lax.ragged_dot(x, w, i[0, :2] // 4),
    X,
    draw(2, 6, 3),
    np.array([[4, 12]], "int32"),
)
program(
    "nearly the largest",
    lambda x: (lax.approx_max_k(x, 2), lax.approx_min_k(x, 2)),
    X,
    smooth=False,
)
program(
    "products in windows",
    lambda x: lax.reduce_window(x, 1.0, lax.mul, (2, 2), (1, 2), "VALID"),
    X,
    smooth=False,
)
program(
    "a sum from another start in windows",
    lambda x: lax.reduce_window(x, 3.0, lax.add, (2, 2), (1, 2), "SAME"),
    X,
    smooth=False,
)
program(
    "windows of two arrays",
    lambda x: lax.reduce_window(
        (x, 2 * x),
        (jnp.float32(-jnp.inf), jnp.float32(1)),
        lambda a, b: (jnp.maximum(a[0], b[0]), a[1] * b[1]),
        (2, 2),
        (1, 2),
        ((1, 0), (0, 1)),
    ),
    X,
    smooth=False,
)
program(
    "windows of a larger product",
    lambda x: lax.reduce_window(x, 0.0, lambda a, b: a + b + a * b, (1, 2), (1, 2), "VALID"),
    X,
    smooth=False,
)
program("layouts and likes", lambda x, y: jax.experimental.shard_alike.shard_alike(x, y), X, Y)

ODD = np.array([np.nan, -np.nan, 0.0, -0.0, np.inf, -np.inf, 1.5, -1.5], "float32")
program(
    "the total order",
    lambda x: [
        each.bind(jnp.tile(x, 8), jnp.repeat(x, 8))
        for each in (primitives.lt_to_p, primitives.le_to_p, primitives.eq_to_p)
    ],
    ODD,
    smooth=False,
)
program("threefry", lambda k, n: threefry_2x32(k, n), KEY, np.arange(10, dtype="uint32"))
program("many seeds", lambda i: jax.random.key_data(jax.vmap(jax.random.key)(i[0])), K)
program(
    "keys in a loop", lambda k: lax.scan(lambda c, _: tuple(jax.random.split(c)), k, None, 3), KEY
)
program("numbers less", lambda x, i: x.at[i % 4].subtract(0.5), X, K)
program("unstacked", lambda x: jnp.unstack(x, axis=1), X)
program("diagonals", lambda s: jnp.log(jnp.diag(s)), S)
program(
    "the gradient of a diagonal", jax.grad(lambda s: jnp.sum(jnp.log(jnp.diag(s)))), S, smooth=False
)
program("nothing yet", lambda x: lax.empty((4, 6), x.dtype).at[:].set(x), X)
