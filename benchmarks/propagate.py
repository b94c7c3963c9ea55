"""Measure the time of propagation through transformers, on meshes of several sizes.

The program is the forward computation: every layer consists of the operations of attention and an
MLP, with parameters and residuals. Only the parameters of the first layer and the input have
annotations, so that all other shardings come from propagation.
"""

import gc
import resource
import time

from shardir import ops as ops  # declares the operations
from shardir.ir.builder import Builder
from shardir.ir.mesh import Mesh
from shardir.ir.module import Function, Module, Value
from shardir.ir.sharding import Axis, Sharding
from shardir.ir.types import TensorType
from shardir.passes import Propagate

BATCH, LENGTH, HEADS, WIDTH, HIDDEN = 64, 256, 16, 64, 4096
MODEL = HEADS * WIDTH


def f32(*shape: int) -> TensorType:
    return TensorType(shape, "f32")


def transformer(layers: int, mesh: Mesh) -> Module:
    """`layers` layers over a mesh with the axes data, model and pipe."""
    b = Builder()
    params: list[Value] = []

    def param(name: str, type: TensorType, *axes: str) -> Value:
        cut = [(Axis.full(axis, mesh),) if axis else () for axis in axes]
        value = b.param(type, name, Sharding.of(mesh.name, cut) if axes else None)
        params.append(value)
        return value

    def spread(x: Value, like: Value, *dims: int) -> Value:
        wide: Value = b.broadcast(x, dims=dims, result=like.type)
        return wide

    def normalised(x: Value, scale: Value) -> Value:
        count = spread(b.full(float(MODEL), f32()), x)
        mean = b.sum(b.div(x, count), dims=(2,))
        centred = b.sub(x, spread(mean, x, 0, 1))
        variance = b.sum(b.div(b.mul(centred, centred), count), dims=(2,))
        small = spread(b.full(1e-5, f32()), variance)
        inverse = b.rsqrt(b.add(variance, small))
        normal = b.mul(centred, spread(inverse, x, 0, 1))
        result: Value = b.mul(normal, spread(scale, x, 2))
        return result

    def attention(x: Value, annotated: bool) -> Value:
        cut = ("", "model", "") if annotated else ()
        q, k, v = (
            b.dot(x, param(f"w{n}", f32(MODEL, HEADS, WIDTH), *cut), dims="blm,mhd->blhd")
            for n in "qkv"
        )
        scores = b.dot(q, k, dims="blhd,bkhd->bhlk")
        scores = b.mul(scores, spread(b.full(0.125, f32()), scores))
        highest = b.max(scores, dims=(3,))
        grown = b.exp(b.sub(scores, spread(highest, scores, 0, 1, 2)))
        total = b.sum(grown, dims=(3,))
        weights = b.div(grown, spread(total, scores, 0, 1, 2))
        mixed = b.dot(weights, v, dims="bhlk,bkhd->bhld")
        mixed = b.transpose(mixed, perm=(0, 2, 1, 3))
        flat = b.reshape(mixed, result=f32(BATCH, LENGTH, MODEL))
        made: Value = b.dot(flat, param("wo", f32(MODEL, MODEL)), dims="blm,mn->bln")
        return made

    def mlp(x: Value, annotated: bool) -> Value:
        up = param("w1", f32(MODEL, HIDDEN), *(("", "model") if annotated else ()))
        bias = param("b1", f32(HIDDEN))
        hidden = b.dot(x, up, dims="blm,mh->blh")
        hidden = b.add(hidden, spread(bias, hidden, 2))
        hidden = b.mul(hidden, b.logistic(hidden))
        made = b.dot(hidden, param("w2", f32(HIDDEN, MODEL)), dims="blh,hm->blm")
        out: Value = b.add(made, spread(param("b2", f32(MODEL)), made, 2))
        return out

    x = param("x", f32(BATCH, LENGTH, MODEL), "data", "", "")
    for layer in range(layers):
        x = b.add(x, attention(normalised(x, param("s1", f32(MODEL))), layer == 0))
        x = b.add(x, mlp(normalised(x, param("s2", f32(MODEL))), layer == 0))
    body = b.block(params, [x])
    return Module((mesh,), (Function("transformer", body, (None,)),))


def measure(layers: int, mesh: Mesh) -> tuple[int, float, int]:
    """Return the numbers of operations, seconds, and sharded values."""
    module = transformer(layers, mesh)
    gc.collect()
    start = time.perf_counter()
    new = Propagate()(module)
    seconds = time.perf_counter() - start
    block = new.main.body
    cut = sum(1 for v in block.values() if v.sharding and any(v.sharding.axes))
    return len(block.ops), seconds, cut


def main() -> None:
    print(f"{'layers':>6} {'devices':>8} {'ops':>8} {'seconds':>8} {'us/op':>6} {'cut':>8}")
    for layers in (16, 170, 512):
        for sizes in ((2, 2, 2), (16, 16, 16)):
            mesh = Mesh("m", tuple(zip(("data", "model", "pipe"), sizes, strict=True)))
            count, seconds, cut = min(
                (measure(layers, mesh) for _ in range(3)), key=lambda row: row[1]
            )
            each = 1e6 * seconds / count
            print(f"{layers:6} {mesh.size:8} {count:8} {seconds:8.2f} {each:6.1f} {cut:8}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory {peak:.0f} MB")


if __name__ == "__main__":
    main()
