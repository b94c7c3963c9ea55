"""Programs on a mesh of Explicit axes, with the types of their results in JAX 0.10.2.

`REFUSED` is the result of programs that JAX refuses. The text of a program and of its operands is
that of `shardir.typeof`, without spaces.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.sharding import AxisType, PartitionSpec as P, reshard

REFUSED = "refused"


@dataclass(frozen=True)
class Program:
    """A program: `operands` are the types of its arguments, `result` the types of its results."""

    name: str
    run: Callable[..., Any]
    operands: tuple[str, ...]
    result: str


def make_explicit_mesh() -> sd.Mesh:
    """Return a mesh of 4 x 2 devices whose axes x and y are Explicit."""
    return sd.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)


def make_operand(text: str) -> Any:
    """Return an array of the type `text`, such as `f32[8@x,16]`, on the entered mesh."""
    name, _, dims = text.removesuffix("]").partition("[")
    shape, spec = [], []
    for dim in dims.replace("(x,y)", "(x+y)").split(",") if dims else ():
        size, _, axes = dim.partition("@")
        shape.append(int(size))
        spec.append(tuple(axes.strip("()").split("+")) if axes else None)
    if name == "key":
        return sd.random.key(0)
    dtype = {"f32": np.float32, "i32": np.int32, "bool": np.bool_}[name]
    count = int(np.prod(shape))
    numbers: Any = (np.arange(count) % 7 + 1).reshape(shape).astype(dtype)
    if name == "i32":
        numbers %= 4
    if shape[-2:] == [8, 8] and len(shape) == 3:
        numbers = numbers / 100 + np.eye(8, dtype=np.float32) * 4
        numbers = (numbers + np.swapaxes(numbers, -1, -2)).astype(dtype)
    mesh = sd.sharding.get_mesh()
    return sd.device_put(numbers, sd.NamedSharding(mesh, P(*spec)))


def _mlp(w: tuple[Any, Any], x: Any) -> Any:
    return (snp.tanh(x @ w[0]) @ w[1]).sum()


PROGRAMS = [
    Program(name, run, tuple(operands.split(";")) if operands else (), result)
    for name, run, operands, result in (
        ("add", lambda a, b: a + b, "f32[8@x,16];f32[8@x,16]", "float32[8@x,16]"),
        ("add replicated", lambda a, b: a + b, "f32[8@x,16];f32[8,16]", "float32[8@x,16]"),
        ("add dimensions", lambda a, b: a + b, "f32[8@x,16];f32[8,16@y]", "float32[8@x,16@y]"),
        ("add one axis twice", lambda a, b: a + b, "f32[8@x,16];f32[8,16@x]", REFUSED),
        ("add two axes", lambda a, b: a + b, "f32[8@x,16];f32[8@y,16]", REFUSED),
        ("add a part", lambda a, b: a + b, "f32[8@(x,y),16];f32[8@x,16]", REFUSED),
        ("add a vector", lambda a, b: a + b, "f32[8@x,16@y];f32[16@y]", "float32[8@x,16@y]"),
        ("add another vector", lambda a, b: a + b, "f32[8@x,16@y];f32[16@x]", REFUSED),
        ("add a column", lambda a, b: a + b, "f32[8@x,16@y];f32[8@x,1]", "float32[8@x,16@y]"),
        ("add a number", lambda a: a + 1.0, "f32[8@x,16@y]", "float32[8@x,16@y]"),
        ("dot", lambda a, b: a @ b, "f32[8@x,16];f32[16,8@y]", "float32[8@x,8@y]"),
        ("dot one axis twice", lambda a, b: a @ b, "f32[8@x,16];f32[16,8@x]", REFUSED),
        ("dot contracted", lambda a, b: a @ b, "f32[8,16@y];f32[16@y,8]", REFUSED),
        ("dot one contracted", lambda a, b: a @ b, "f32[8,16@y];f32[16,8]", "float32[8,8]"),
        ("dot differing", lambda a, b: a @ b, "f32[8,16@y];f32[16@x,8]", REFUSED),
        (
            "dot out_sharding",
            lambda a, b: snp.dot(a, b, out_sharding=P("x", None)),
            "f32[8@x,16@y];f32[16@y,8]",
            "float32[8@x,8]",
        ),
        (
            "dot scattered",
            lambda a, b: snp.dot(a, b, out_sharding=P("y", None)),
            "f32[8,16@y];f32[16@y,8]",
            "float32[8@y,8]",
        ),
        (
            "dot unreduced",
            lambda a, b: reshard(
                _show(snp.dot(a, b, out_sharding=P(None, None, unreduced={"y"}))), P()
            ),
            "f32[8,16@y];f32[16@y,8]",
            "float32[8,8]{U:y}",
        ),
        ("gram", lambda a: a.T @ a, "f32[8@x,16]", REFUSED),
        (
            "einsum batch",
            lambda a, b: snp.einsum("bij,bjk->bik", a, b),
            "f32[4@x,8,16];f32[4@x,16,8@y]",
            "float32[4@x,8,8@y]",
        ),
        (
            "einsum batch differing",
            lambda a, b: snp.einsum("bij,bjk->bik", a, b),
            "f32[4@x,8,16];f32[4@y,16,8]",
            REFUSED,
        ),
        ("sum", lambda a: a.sum(0), "f32[8@x,16@y]", "float32[16@y]"),
        ("sum all", lambda a: a.sum(), "f32[8@x,16@y]", "float32[]"),
        ("max", lambda a: a.max(0, keepdims=True), "f32[8@x,16@y]", "float32[1,16@y]"),
        ("argmax", lambda a: a.argmax(0), "f32[8@x,16]", "int32[16]"),
        ("cumsum sharded", lambda a: snp.cumsum(a, 0), "f32[8@x,16]", REFUSED),
        ("cumsum", lambda a: snp.cumsum(a, 1), "f32[8@x,16]", "float32[8@x,16]"),
        ("sort sharded", lambda a: snp.sort(a, 0), "f32[8@x,16]", REFUSED),
        ("sort", lambda a: snp.sort(a, 1), "f32[8@x,16]", "float32[8@x,16]"),
        ("top_k sharded", lambda a: lax.top_k(a, 2), "f32[8,16@y]", REFUSED),
        ("top_k", lambda a: lax.top_k(a, 2), "f32[8@x,16]", "float32[8@x,2];int32[8@x,2]"),
        ("transpose", lambda a: a.T, "f32[8@x,16@y]", "float32[16@y,8@x]"),
        ("merge major", lambda a: a.reshape(128), "f32[8@x,16]", "float32[128@x]"),
        ("merge minor", lambda a: a.reshape(128), "f32[8,16@y]", REFUSED),
        ("split major", lambda a: a.reshape(4, 2, 16), "f32[8@x,16]", "float32[4@x,2,16]"),
        ("split indivisible", lambda a: a.reshape(2, 4, 16), "f32[8@x,16]", REFUSED),
        ("split minor", lambda a: a.reshape(8, 2, 8), "f32[8,16@y]", "float32[8,2@y,8]"),
        (
            "reshape out_sharding",
            lambda a: lax.reshape(a, (2, 4, 16), out_sharding=P(None, "x", None)),
            "f32[8@x,16]",
            "float32[2,4@x,16]",
        ),
        ("add a dimension", lambda a: a[:, None], "f32[8@x,16@y]", "float32[8@x,1,16@y]"),
        ("squeeze", lambda a: a.squeeze(1), "f32[8@x,1,16@y]", "float32[8@x,16@y]"),
        (
            "broadcast_to",
            lambda a: snp.broadcast_to(a, (3, 8, 16)),
            "f32[8@x,16@y]",
            "float32[3,8@x,16@y]",
        ),
        (
            "concatenate sharded",
            lambda a, b: snp.concatenate([a, b], 0),
            "f32[8@x,16];f32[8@x,16]",
            "float32[16@x,16]",
        ),
        (
            "concatenate",
            lambda a, b: snp.concatenate([a, b], 1),
            "f32[8@x,16];f32[8@x,16]",
            "float32[8@x,32]",
        ),
        (
            "concatenate differing",
            lambda a, b: snp.concatenate([a, b], 0),
            "f32[8@x,16];f32[8,16]",
            REFUSED,
        ),
        (
            "stack",
            lambda a, b: snp.stack([a, b]),
            "f32[8@x,16];f32[8@x,16]",
            "float32[2,8@x,16]",
        ),
        ("slice sharded", lambda a: a[:4], "f32[8@x,16]", "float32[4@x,16]"),
        ("slice indivisible", lambda a: a[:3], "f32[8@x,16]", REFUSED),
        ("slice", lambda a: a[:, :3], "f32[8@x,16]", "float32[8@x,3]"),
        ("index sharded", lambda a: a[0], "f32[8@x,16@y]", REFUSED),
        (
            "dynamic_slice sharded",
            lambda a, i: lax.dynamic_slice(a, (i, 0), (4, 16)),
            "f32[8@x,16];i32[]",
            "float32[4@x,16]",
        ),
        (
            "dynamic_slice",
            lambda a, i: lax.dynamic_slice(a, (0, i), (8, 4)),
            "f32[8@x,16];i32[]",
            "float32[8@x,4]",
        ),
        (
            "dynamic_update_slice",
            lambda a, b: lax.dynamic_update_slice(a, b, (0, 0)),
            "f32[8@x,16];f32[8@x,4]",
            "float32[8@x,16]",
        ),
        (
            "dynamic_update_slice differing",
            lambda a, b: lax.dynamic_update_slice(a, b, (0, 0)),
            "f32[8@x,16];f32[8,4]",
            REFUSED,
        ),
        ("take", lambda a, i: snp.take(a, i, axis=0), "f32[8@x,16];i32[4]", REFUSED),
        (
            "get",
            lambda a, i: a.at[i].get(out_sharding=P("x", None)),
            "f32[8@x,16];i32[4]",
            "float32[4@x,16]",
        ),
        ("take sharded", lambda a, i: snp.take(a, i, axis=0), "f32[8,16];i32[4@x]", REFUSED),
        (
            "scatter add",
            lambda a, i, b: a.at[i].add(b),
            "f32[8@x,16];i32[4];f32[4,16]",
            REFUSED,
        ),
        (
            "scatter set",
            lambda a, i, b: a.at[i].set(b),
            "f32[8,16];i32[4];f32[4,16]",
            "float32[8,16]",
        ),
        ("one_hot", lambda i: sd.nn.one_hot(i, 4), "i32[8@x]", "float32[8@x,4]"),
        ("pad sharded", lambda a: snp.pad(a, ((1, 1), (0, 0))), "f32[8@x,16]", REFUSED),
        ("pad", lambda a: snp.pad(a, ((0, 0), (1, 1))), "f32[8@x,16]", "float32[8@x,18]"),
        ("rev", lambda a: a[::-1], "f32[8@x,16]", "float32[8@x,16]"),
        ("roll sharded", lambda a: snp.roll(a, 1, 0), "f32[8@x,16]", REFUSED),
        (
            "conv batch",
            lambda a, w: lax.conv(a, w, (1, 1), "SAME"),
            "f32[8@x,3,8,8];f32[4,3,3,3]",
            "float32[8@x,4,8,8]",
        ),
        (
            "conv spatial",
            lambda a, w: lax.conv(a, w, (1, 1), "SAME"),
            "f32[8,3,8@x,8];f32[4,3,3,3]",
            "float32[8,4,8@x,8]",
        ),
        ("softmax", lambda a: sd.nn.softmax(a, 0), "f32[8@x,16]", "float32[8@x,16]"),
        (
            "where differing",
            lambda c, a, b: snp.where(c, a, b),
            "bool[8@x,16];f32[8@x,16];f32[8,16]",
            REFUSED,
        ),
        ("iota", lambda: snp.arange(8.0), "", "float32[8]"),
        (
            "normal out_sharding",
            lambda k: sd.random.normal(k, (8, 16), out_sharding=P("x", "y")),
            "key[]",
            "float32[8@x,16@y]",
        ),
        ("normal", lambda k: sd.random.normal(k, (8, 16)), "key[]", "float32[8,16]"),
        ("reshard", lambda a: reshard(a, P(None, "y")), "f32[8@x,16]", "float32[8,16@y]"),
        (
            "constraint",
            lambda a: lax.with_sharding_constraint(a, P("x", None)),
            "f32[8@x,16]",
            "float32[8@x,16]",
        ),
        (
            "constraint differing",
            lambda a: lax.with_sharding_constraint(a, P(None, "x")),
            "f32[8@x,16]",
            REFUSED,
        ),
        (
            "cond",
            lambda p, a: lax.cond(p, lambda x: x * 2, lambda x: x + 1, a),
            "bool[];f32[8@x,16]",
            "float32[8@x,16]",
        ),
        (
            "cond differing",
            lambda p, a: lax.cond(p, lambda x: x * 2, lambda x: reshard(x, P()), a),
            "bool[];f32[8@x,16]",
            REFUSED,
        ),
        (
            "scan sharded",
            lambda a: lax.scan(lambda c, x: (c + x, x), snp.zeros(16), a),
            "f32[8@x,16@y]",
            REFUSED,
        ),
        (
            "scan",
            lambda a: lax.scan(lambda c, x: (c + x, x), reshard(snp.zeros(16), P("y")), a),
            "f32[8,16@y]",
            "float32[16@y];float32[8,16@y]",
        ),
        ("vmap sharded", lambda a: sd.vmap(lambda r: r.sum())(a), "f32[8@x,16@y]", "float32[8@x]"),
        ("vmap", lambda a: sd.vmap(lambda r: r * 2)(a), "f32[8,16@y]", "float32[8,16@y]"),
        (
            "grad of dot",
            lambda a, b: sd.grad(lambda a, b: (a @ b).sum(), (0, 1))(a, b),
            "f32[8@x,16];f32[16,8@y]",
            "float32[8@x,16];float32[16,8@y]",
        ),
        (
            "grad of mlp",
            lambda a, b, x: sd.grad(_mlp)((a, b), x),
            "f32[16,32@y];f32[32@y,16];f32[8@x,16]",
            REFUSED,
        ),
        ("fft", lambda a: snp.fft.fft(a, axis=1), "f32[8@x,16]", "complex64[8@x,16]"),
        ("fft sharded", lambda a: snp.fft.fft(a, axis=1), "f32[8,16@y]", "complex64[8,16@y]"),
        ("cholesky", lambda a: snp.linalg.cholesky(a), "f32[4@x,8,8]", REFUSED),
        ("split", lambda a: snp.split(a, 2, 1), "f32[8@x,16]", "float32[8@x,8];float32[8@x,8]"),
        (
            "split sharded",
            lambda a: snp.split(a, 2, 0),
            "f32[8@x,16]",
            "float32[4@x,16];float32[4@x,16]",
        ),
        ("repeat", lambda a: snp.repeat(a, 2, axis=0), "f32[8@x,16]", REFUSED),
        ("tile", lambda a: snp.tile(a, (2, 1)), "f32[8@x,16]", REFUSED),
        ("clip", lambda a: snp.clip(a, 0.0, 1.0), "f32[8@x,16@y]", "float32[8@x,16@y]"),
        ("astype", lambda a: a.astype("int32"), "f32[8@x,16@y]", "int32[8@x,16@y]"),
        (
            "bitcast",
            lambda a: lax.bitcast_convert_type(a, "uint8"),
            "f32[8@x,16@y]",
            "uint8[8@x,16@y,4]",
        ),
        ("index by a traced number", lambda a, i: a[i], "f32[8@x,16];i32[]", REFUSED),
        (
            "index another dimension",
            lambda a, i: a[:, i],
            "f32[8@x,16];i32[]",
            "float32[8@x]",
        ),
        ("argsort", lambda a: snp.argsort(a, 1), "f32[8@x,16]", "int32[8@x,16]"),
        (
            "einsum ambiguous",
            lambda a, b: snp.einsum("ij,jk->ik", a, b),
            "f32[8@x,16@y];f32[16@y,8@x]",
            REFUSED,
        ),
        (
            "reduce_window",
            lambda a: lax.reduce_window(a, 0.0, lax.add, (1, 2), (1, 2), "VALID"),
            "f32[8@x,16]",
            "float32[8@x,8]",
        ),
        (
            "normalize",
            lambda a: (a - a.mean(1, keepdims=True)) / snp.sqrt(a.var(1, keepdims=True) + 1),
            "f32[8@x,16@y]",
            "float32[8@x,16@y]",
        ),
    )
]
"""The programs of which JAX's answers are known."""

_shown: list[str] = []


def _show(x: Any) -> Any:
    """Record the type of an intermediate value, which then counts as that of the result."""
    _shown.append(str(sd.typeof(x)))
    return x


def trace_types(program: Program) -> str:
    """Return the types of the results of a program on the entered mesh."""
    found: list[str] = []

    def run(*args: Any) -> Any:
        _shown.clear()
        made = program.run(*args)
        found[:] = _shown or [str(sd.typeof(x)) for x in sd.tree.leaves(made)]
        return made

    sd.jit(run).lower(*map(make_operand, program.operands))
    return ";".join(found)
