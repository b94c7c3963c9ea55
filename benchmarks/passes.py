"""Measure the parser, the printer and every pass on programs of many layers and several meshes.

The program is a chain of dense layers with biases, rectified linear units and residual sums,
sharded over a mesh (data, model). The time of each pass must be linear in the number of operations
and independent of the number of devices, which need not exist.

    python benchmarks/passes.py [operations ...]
"""

import sys
import time
from collections.abc import Callable
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from shardir.ir.builder import Builder
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Function, Module
from shardir.ir.sharding import Axis, Sharding
from shardir.ir.types import TensorType
from shardir.passes import Pipeline
from shardir.passes.pipeline import DEFAULT_PIPELINE
from shardir.text.parser import parse
from shardir.verify.verifier import verify

Result = TypeVar("Result")
MESHES = ((4, 2), (64, 64))


def layers(operations: int, mesh: Mesh) -> Module:
    """Return a program of about this number of operations."""
    data, model = (Axis.full(name, mesh) for name, _ in mesh.axes)
    b = Builder()
    width, batch = 8192, 8192
    x = b.param(TensorType((batch, width), "f32"), "x", Sharding.of(mesh.name, ((data,), ())))
    params = [x]
    for layer in range(operations // 8):
        w1, w2 = (
            b.param(TensorType((width, width), "f32"), f"w{layer}.{i}", sharding)
            for i, sharding in enumerate((Sharding.of(mesh.name, ((), (model,))), None))
        )
        bias = b.param(TensorType((width,), "f32"), f"b{layer}")
        params += [w1, w2, bias]
        h = b.dot(x, w1, dims="bi,ih->bh")
        h = b.add(h, b.broadcast(bias, dims=(1,), result=h.type))
        h = b.maximum(h, b.full(0.0, h.type))
        x = b.tanh(b.add(x, b.dot(h, w2, dims="bh,hi->bi")))
    body = Block(tuple(params), tuple(b.ops), (x,))
    return Module((mesh,), (Function("layers", body, (None,)),))


def timed(work: Callable[[], Result]) -> tuple[Result, float]:
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def measure(operations: int, shape: tuple[int, int]) -> dict[str, float]:
    """Seconds for each stage."""
    module = layers(operations, Mesh("grid", (("data", shape[0]), ("model", shape[1]))))
    seconds: dict[str, float] = {}
    text, seconds["print"] = timed(lambda: str(module))
    module, seconds["parse"] = timed(lambda: parse(text))
    _, seconds["verify"] = timed(lambda: verify(module))
    for step in Pipeline.parse(DEFAULT_PIPELINE).passes:
        module, seconds[step.name] = timed(lambda step=step, before=module: step(before))  # type: ignore[misc]
    return seconds


def main() -> None:
    sizes = [int(arg) for arg in sys.argv[1:]] or [1000, 10000]
    columns = [(n, shape) for n in sizes for shape in MESHES]
    measure(200, MESHES[0])
    found = [measure(*column) for column in columns]
    table = Table("stage", *(f"{n} ops, {a * b} devices" for n, (a, b) in columns),
                  title="seconds")  # fmt: skip
    for stage in found[0]:
        table.add_row(stage, *(f"{seconds[stage]:.3f}" for seconds in found))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
