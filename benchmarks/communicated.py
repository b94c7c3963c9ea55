"""The programs whose communication `collectives.py` compares, written for shardir and for JAX.

Both libraries share the interface that is used here, so each program is one function of a
`Library` and its arrays.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations
from typing import Any

Spec = tuple[Any, ...]
"""An entry of a PartitionSpec: for each dimension an axis, several axes, or `None`."""


@dataclass(frozen=True)
class Library:
    """The library of a program, `shardir` or `jax`: its parts, and its mesh of x=4, y=2."""

    top: Any
    numpy: Any
    lax: Any
    nn: Any
    random: Any
    sharding: Callable[[Spec], Any]


@dataclass(frozen=True)
class Array:
    """An argument: its shape, its sharding, and its element type."""

    shape: tuple[int, ...]
    spec: Spec = ()
    dtype: str = "float32"


@dataclass(frozen=True)
class Program:
    """One row: a function of a library and arrays, its arguments, the sharding of the result.

    `best` is the number of collectives of the best plan known, `best_bytes` the bytes of their
    results on one device where that is known. `uneven`: shards of the result may differ in size.
    """

    group: str
    name: str
    run: Callable[..., Any]
    arguments: tuple[Array, ...]
    best: int
    best_bytes: int | None = None
    out: Spec | None = None
    uneven: bool = False


X = Array((64, 128), ("x",))
COLUMNS = Array((64, 128), (None, "x"))
NUMBER = Array((), (), "int32")
IMAGES = (8, 16, 16, 4)
SPACE = Array(IMAGES, (None, "x"))
FILTERS = Array((3, 3, 4, 8))
NHWC = ("NHWC", "HWIO", "NHWC")


def convolved(lib: Library, x: Any, w: Any, stride: int = 1, groups: int = 1) -> Any:
    return lib.lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=NHWC, feature_group_count=groups
    )


def pooled(lib: Library, x: Any) -> Any:
    window, strides = (1, 3, 3, 1), (1, 2, 2, 1)
    return lib.lax.reduce_window(x, -float("inf"), lib.lax.max, window, strides, "SAME")


def stencil(lib: Library, x: Any) -> Any:
    p = lib.numpy.pad(x, ((1, 1), (0, 0)))
    return p[:-2] + p[1:-1] + p[2:]


def normalized(lib: Library, x: Any, axis: int) -> Any:
    mean = lib.numpy.mean(x, axis=axis, keepdims=True)
    variance = lib.numpy.mean(x * x, axis=axis, keepdims=True) - mean * mean
    return (x - mean) * lib.lax.rsqrt(variance + 1e-5)


def constrained(lib: Library, x: Any, *spec: Any) -> Any:
    return lib.lax.with_sharding_constraint(x, lib.sharding(spec))


OPERATIONS: list[tuple[str, Callable[..., Any], tuple[Array, ...], int]] = [
    ("fft axis 1 of P(x,_)", lambda lib, x: lib.numpy.fft.fft(x, axis=1), (X,), 0),
    ("fft2 vmapped", lambda lib, x: lib.top.vmap(lib.numpy.fft.fft2)(x),
     (Array((8, 16, 16), ("x",)),), 0),
    ("top_k axis 1 of P(x,_)", lambda lib, x: lib.lax.top_k(x, 4), (X,), 0),
    ("top_k axis 1 of P(_,x)", lambda lib, x: lib.lax.top_k(x, 4), (COLUMNS,), 2),
    ("reshape to [2,32,128] and back",
     lambda lib, x: lib.numpy.tanh(x.reshape(2, 32, 128)).reshape(64, 128), (X,), 0),
    ("reshape to [2,32,128]", lambda lib, x: x.reshape(2, 32, 128), (X,), 0),
    ("reshape P(_,x) to [64,2,64]", lambda lib, x: x.reshape(64, 2, 64), (COLUMNS,), 0),
    ("reshape P(_,x) to [64,2,64] and back",
     lambda lib, x: lib.numpy.tanh(x.reshape(64, 2, 64)).reshape(64, 128), (COLUMNS,), 0),
    ("reshape P(_,x) to [8192]", lambda lib, x: x.reshape(8192), (COLUMNS,), 1),
    ("a.at[0:3].set", lambda lib, x: x.at[0:3].set(1.0), (X,), 0),
    ("dynamic_update_slice", lambda lib, x, u, i: lib.lax.dynamic_update_slice(x, u, (i, 0)),
     (X, Array((8, 128)), NUMBER), 0),
    ("dynamic_slice", lambda lib, x, i: lib.lax.dynamic_slice(x, (i, 0), (8, 128)), (X, NUMBER), 1),
    ("x[1:]", lambda lib, x: x[1:], (X,), 1),
    ("x[1:] - x[:-1]", lambda lib, x: x[1:] - x[:-1], (X,), 1),
    ("x[::-1]", lambda lib, x: x[::-1], (X,), 1),
    ("x[::2]", lambda lib, x: x[::2], (X,), 0),
    ("x[:32]", lambda lib, x: x[:32], (X,), 2),
    ("pad(1) and 3-point stencil", stencil, (X,), 2),
    ("roll(1) + roll(-1)", lambda lib, x: lib.numpy.roll(x, 1, 0) + lib.numpy.roll(x, -1, 0),
     (X,), 2),
    ("cumsum axis 0", lambda lib, x: lib.numpy.cumsum(x, 0), (X,), 1),
    ("argmax axis 0", lambda lib, x: lib.numpy.argmax(x, 0), (X,), 2),
    ("sort axis 0", lambda lib, x: lib.numpy.sort(x, 0), (X,), 2),
    ("concatenate axis 0", lambda lib, x, y: lib.numpy.concatenate([x, y], 0), (X, X), 2),
    ("P(x,_) + P(y,_)", lambda lib, x, y: x + y, (X, Array((64, 128), ("y",))), 1),
    ("P(x,_) + P(_,x)", lambda lib, x, y: x + y, (X, COLUMNS), 1),
    ("mean of P(x,y)", lambda lib, x: lib.numpy.mean(x), (Array((64, 128), ("x", "y")),), 1),
    ("constraint of 17 rows over 4", lambda lib, x: constrained(lib, x * 2, "x"),
     (Array((17, 128)),), 0),
    ("softmax over the cut axis", lambda lib, x: lib.nn.softmax(x, 0), (X,), 2),
    ("layer norm over the cut axis", lambda lib, x: normalized(lib, x, 0), (X,), 2),
    ("rows of P(x,_)", lambda lib, x, i: x[i], (X, Array((16,), (), "int32")), 1),
    ("convolution, batch", convolved, (Array(IMAGES, ("x",)), FILTERS), 0),
    ("convolution, space", convolved, (SPACE, FILTERS), 2),
    ("convolution, space, stride 2", lambda lib, x, w: convolved(lib, x, w, 2),
     (SPACE, FILTERS), 1),
    ("convolution, depthwise, features", lambda lib, x, w: convolved(lib, x, w, groups=4),
     (Array(IMAGES, (None, None, None, "x")), Array((3, 3, 1, 4))), 0),
    ("gradient of the filters, space",
     lambda lib, x, w: lib.top.grad(lambda w: (convolved(lib, x, w) ** 2).sum())(w),
     (SPACE, FILTERS), 5),
    ("max pooling, space", pooled, (SPACE,), 1),
    ("cholesky, batch",
     lambda lib, x: lib.numpy.linalg.cholesky(x @ x.swapaxes(1, 2) + 20 * lib.numpy.eye(8)),
     (Array((8, 8, 8), ("x",)),), 0),
    ("normal numbers, cut", lambda lib, x: constrained(
        lib, lib.random.normal(lib.random.key(0), (64, 128)), "x") + x, (X,), 0),
]  # fmt: skip

MATMULS = [
    ("[x,_] @ [_,y]", ("x",), (None, "y"), 0),
    ("[_,x] @ [x,_]", (None, "x"), ("x",), 1),
    ("[_,x] @ [_,_]", (None, "x"), (), 1),
    ("[x,_] @ [_,x]", ("x",), (None, "x"), 1),
    ("[x,y] @ [_,y]", ("x", "y"), (None, "y"), 1),
    ("[x,y] @ [y,_]", ("x", "y"), ("y",), 1),
    ("[x,y] @ [y,x]", ("x", "y"), ("y", "x"), 2),
]

PLACES: dict[str, Spec] = {
    "P()": (),
    "P(x,_)": ("x",),
    "P(_,x)": (None, "x"),
    "P(y,_)": ("y",),
    "P(x,y)": ("x", "y"),
    "P(y,x)": ("y", "x"),
    "P((x,y),_)": (("x", "y"),),
    "P((y,x),_)": (("y", "x"),),
    "P(_,(x,y))": (None, ("x", "y")),
}

BETTER = {
    ("P(_,x)", "P(y,_)"): 16384,
    ("P(y,_)", "P(_,x)"): 8192,
    ("P((y,x),_)", "P(_,x)"): 12288,
    ("P((x,y),_)", "P(_,x)"): 12288,
    ("P(_,(x,y))", "P(y,_)"): 20480,
    ("P(_,(x,y))", "P(x,_)"): 12288,
}
"""Bytes of the plans known where XLA gathers everything."""


BYTES = {"reshape P(_,x) to [8192]": 8192}
"""The same for operations: shards that are exchanged, and a result that stays sharded."""


def programs() -> list[Program]:
    """All rows, in the order of the table."""
    uneven = ("x[1:]", "x[1:] - x[:-1]", "constraint of 17 rows over 4")
    rows = [
        Program("operations", name, run, arguments, best, BYTES.get(name), uneven=name in uneven)
        for name, run, arguments, best in OPERATIONS
    ]
    a, b = (64, 128), (128, 64)
    for name, left, right, best in MATMULS:
        arguments = (Array(a, left), Array(b, right))
        rows.append(Program("matrix products", name, lambda lib, x, y: x @ y, arguments, best))
    scattered = (Array(a, (None, "x")), Array(b, ("x",)))
    rows.append(
        Program("matrix products", "[_,x] @ [x,_] to P(x,_)", lambda lib, x, y: x @ y, scattered, 1,
                64 * 64, ("x",))
    )  # fmt: skip
    turned = Array((64, 64, 8), ("y", None, "x"))
    rows.append(
        Program("reshards", "[y,_,x] to [_,(x,y),_]", lambda lib, x: x * 2, (turned,), 2,
                out=(None, ("x", "y")))
    )  # fmt: skip
    for source, target in permutations(PLACES, 2):
        better = BETTER.get((source, target))
        here = (Array((64, 128), PLACES[source]),)
        rows.append(
            Program("reshards", f"{source} to {target}", lambda lib, x: x * 2, here,
                    -1, better, PLACES[target])
        )  # fmt: skip
    return rows + training()


def training() -> list[Program]:
    """A decoder of nine arrays a layer and a tied embedding, with data and tensor parallelism."""
    rows = []
    for layers in (1, 2):
        for name, data, model, best in (
            ("data parallel", "x", None, 9 * layers + 2),
            ("tensor parallel", None, "y", 4 * layers),
            ("both", "x", "y", 13 * layers + 2),
        ):
            shapes = _parameters(layers, model)
            arguments = (Array((16, 32), (data,), "int32"), *shapes)
            rows.append(
                Program(
                    "training", f"{name}, {layers} layers", _step, arguments, best, uneven=False
                )
            )
        forward = (Array((16, 32), (), "int32"), *_parameters(layers, "y"))
        rows.append(Program("training", f"forward, tensor parallel, {layers} layers", _loss,
                            forward, 2 * layers))  # fmt: skip
    return rows


BATCH, SEQUENCE, WIDTH, HEADS, HIDDEN, WORDS = 16, 32, 64, 8, 256, 128


def _parameters(layers: int, model: str | None) -> tuple[Array, ...]:
    heads = (WIDTH, HEADS, WIDTH // HEADS)
    layer = (
        Array((WIDTH,)),
        *(Array(heads, (None, model)) for _ in range(3)),
        Array((HEADS, WIDTH // HEADS, WIDTH), (model,)),
        Array((WIDTH,)),
        Array((WIDTH, HIDDEN), (None, model)),
        Array((HIDDEN,), (model,)),
        Array((HIDDEN, WIDTH), (model,)),
    )
    return (Array((WORDS, WIDTH)), *layer * layers)


def _loss(lib: Library, words: Any, embedding: Any, *layers: Any) -> Any:
    n = lib.numpy
    x = embedding[words]
    for i in range(0, len(layers), 9):
        scale1, wq, wk, wv, wo, scale2, up, bias, down = layers[i : i + 9]
        h = normalized(lib, x, -1) * scale1
        q, k, v = (n.einsum("bsd,dhk->bshk", h, w) for w in (wq, wk, wv))
        weights = lib.nn.softmax(n.einsum("bshk,bthk->bhst", q, k) * 0.35, -1)
        attended = n.einsum("bhst,bthk->bshk", weights, v)
        x = x + n.einsum("bshk,hkd->bsd", attended, wo)
        h = normalized(lib, x, -1) * scale2
        x = x + n.tanh(h @ up + bias) @ down
    logits = n.einsum("bsd,wd->bsw", x, embedding)
    return n.mean(lib.nn.logsumexp(logits, -1) - n.mean(logits, -1))


def _step(lib: Library, words: Any, *params: Any) -> Any:
    loss, slopes = lib.top.value_and_grad(
        lambda *p: _loss(lib, words, *p), argnums=tuple(range(len(params)))
    )(*params)
    return [loss, *(p - 0.1 * g for p, g in zip(params, slopes, strict=True))]
