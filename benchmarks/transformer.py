"""Measure the stages of a transformer's training step on an abstract mesh.

The program is a decoder of many layers (multi-head attention, two dense layers, layer norm),
forward and backward with a step of gradient descent, sharded over (data, model, stage). The time of
every stage must be linear in the number of layers and independent of the number of devices. The
last lines state the times of the searches for plans of the same program without shardings. Times
are processor times.

    python benchmarks/transformer.py [layers]
"""

import resource
import sys
import time
from typing import Any

from rich.console import Console
from rich.table import Table

import shardir as sd
import shardir.numpy as snp
from shardir.frontend.shardings.devices import virtual_devices
from shardir.machine import load_machine
from shardir.passes import Pipeline
from shardir.passes.pipeline import DEFAULT_PIPELINE
from shardir.passes.simulation import simulate
from shardir.passes.simulation.simulate import FUSION_PIPELINE
from shardir.sharding import NamedSharding, PartitionSpec as P
from shardir.text.printer import print_module

BATCH, SEQUENCE, WIDTH, HEADS, HIDDEN, WORDS = 64, 512, 1024, 16, 4096, 32768
MESHES = ((16, 16, 8), (2, 2, 2))

SPECS = {
    "qkv": (P(None, None, "model", None), (WIDTH, 3, HEADS, WIDTH // HEADS)),
    "out": (P("model", None, None), (HEADS, WIDTH // HEADS, WIDTH)),
    "up": (P(None, "model"), (WIDTH, HIDDEN)),
    "up_bias": (P("model"), (HIDDEN,)),
    "down": (P("model", None), (HIDDEN, WIDTH)),
    "down_bias": (P(), (WIDTH,)),
    "scale1": (P(), (WIDTH,)),
    "scale2": (P(), (WIDTH,)),
}


def normalized(x: Any, scale: Any) -> Any:
    mean = snp.mean(x, axis=-1, keepdims=True)
    variance = snp.mean((x - mean) ** 2, axis=-1, keepdims=True)
    return (x - mean) / snp.sqrt(variance + 1e-5) * scale


def softmax(x: Any) -> Any:
    raised = snp.exp(x - snp.max(x, axis=-1, keepdims=True))
    return raised / snp.sum(raised, axis=-1, keepdims=True)


def block(x: Any, layer: dict[str, Any]) -> Any:
    h = normalized(x, layer["scale1"])
    qkv = snp.einsum("bsd,dchk->cbhsk", h, layer["qkv"])
    q, k, v = qkv[0], qkv[1], qkv[2]
    weights = softmax(snp.einsum("bhsk,bhtk->bhst", q, k) * (WIDTH // HEADS) ** -0.5)
    attended = snp.einsum("bhst,bhtk->bshk", weights, v)
    x = x + snp.einsum("bshk,hkd->bsd", attended, layer["out"])
    h = normalized(x, layer["scale2"])
    h = snp.tanh(h @ layer["up"] + layer["up_bias"])
    return x + h @ layer["down"] + layer["down_bias"]


def loss(params: Any, words: Any, targets: Any) -> Any:
    x = params["embedding"][words]
    for layer in params["layers"]:
        x = block(x, layer)
    logits = x @ params["embedding"].T
    logits = logits - snp.max(logits, axis=-1, keepdims=True)
    log_total = snp.log(snp.sum(snp.exp(logits), axis=-1))
    chosen = snp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return snp.mean(log_total - chosen)


@sd.jit
def train_step(params: Any, words: Any, targets: Any) -> Any:
    value, gradients = sd.value_and_grad(loss)(params, words, targets)
    return value, sd.tree.map(lambda p, g: p - 0.01 * g, params, gradients)


def arguments(layers: int, shape: tuple[int, ...]) -> tuple[Any, ...]:
    count = shape[0] * shape[1] * shape[2]
    mesh = sd.make_mesh(shape, ("data", "model", "stage"), devices=virtual_devices(count))

    def struct(spec: P, size: tuple[int, ...], dtype: str = "float32") -> Any:
        return sd.ShapeDtypeStruct(size, dtype, sharding=NamedSharding(mesh, spec))

    one = {name: struct(*spec) for name, spec in SPECS.items()}
    params = {
        "embedding": struct(P(None, "model"), (WORDS, WIDTH)),
        "layers": [dict(one) for _ in range(layers)],
    }
    words = struct(P("data", None), (BATCH, SEQUENCE), "int32")
    return params, words, words


def measure(layers: int, shape: tuple[int, ...]) -> dict[str, float]:
    found: dict[str, float] = {}
    args = arguments(layers, shape)
    start = time.process_time()

    def lap(name: str) -> None:
        nonlocal start
        found[name] = time.process_time() - start
        start = time.process_time()

    train_step.clear_cache()
    module = train_step.lower(*args).module
    lap("trace")
    found["operations"] = sum(1 for _ in module.main.body.walk())
    start = time.process_time()
    for step in Pipeline.parse(DEFAULT_PIPELINE).passes:
        module = step(module)
        lap(step.name)
        if step.name == "propagate":
            print_module(module)
            lap("print")
    kernels = Pipeline.parse(FUSION_PIPELINE)(module)
    lap("fuse")
    machine = load_machine("a100x8-800g", axes=dict(module.meshes[0].axes))
    simulate(kernels, machine, fusion="")
    lap("simulate")
    found["peak memory, MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found


def measure_plan(layers: int, shape: tuple[int, ...], machine: str | None) -> tuple[int, float]:
    """Return the number of candidates of a plan, and the seconds of the search."""
    structs = sd.tree.map(
        lambda each: sd.ShapeDtypeStruct(each.shape, each.dtype), arguments(layers, shape)
    )
    count = shape[0] * shape[1] * shape[2]
    mesh = sd.make_mesh(shape, ("data", "model", "stage"), devices=virtual_devices(count))
    start = time.process_time()
    plan = sd.plan(train_step, structs, mesh, machine)
    return plan.evaluation_count, time.process_time() - start


def main() -> None:
    layers = int(sys.argv[1]) if len(sys.argv) > 1 else 96
    measure(2, MESHES[1])
    found = [measure(layers, shape) for shape in MESHES]
    table = Table("stage", *map(str, MESHES), title=f"{layers} layers, seconds of processor time")
    for stage in found[0]:
        table.add_row(stage, *(f"{column[stage]:.2f}" for column in found))
    Console().print(table)
    for machine in (None, "tpu-v5p"):
        candidates, seconds = measure_plan(layers, MESHES[0], machine)
        name = machine or "no machine"
        print(f"plan on {MESHES[0]}, {name}: {seconds:.1f} s for {candidates} candidates")


if __name__ == "__main__":
    main()
