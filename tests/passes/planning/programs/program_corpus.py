"""The programs of the test suite that a plan can have, without shardings and by name.

They are the published plans, the samples of all operations, the first programs of the stories,
random programs, and functions of the examples and benchmarks.
"""

import runpy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import shardir as sd
import shardir.nn
import shardir.numpy as snp
from shardir.frontend.random_programs.programs import random_program
from shardir.ir.builder import substitute
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Module, Value
from shardir.ops.control_flow.pipelines import has_pipelines
from shardir.text.parser import parse
from tests.passes.planning.programs.published_plans import ALPA, AUTOPARALLEL, LLAMA
from tests.samples import SAMPLES

ROOT = Path(__file__).parents[4]
RANDOM_PROGRAMS = 200
RANDOM_OPERATIONS = 16

Trace = Callable[[], Module]

LINE, SQUARE = Mesh("mesh", (("x", 4),)), Mesh("mesh", (("x", 2), ("y", 2)))
MESHES = {"line": LINE, "square": SQUARE, "rectangle": Mesh("mesh", (("x", 4), ("y", 2)))}


def remove_shardings(module: Module) -> Module:
    """Return a module without meshes and shardings of the values of its first function."""
    function = module.main
    new = {value: replace(value, sharding=None) for value in _values(function.body)}
    body = substitute(function.body, new)
    bare = replace(function, body=body, result_shardings=(None,) * len(body.returns))
    return Module((), (bare, *module.functions[1:]))


def _values(block: Block) -> Iterator[Value]:
    yield from block.params
    for op in block.ops:
        yield from op.results
        for inner in op.blocks:
            yield from _values(inner)


def is_plannable(module: Module) -> bool:
    """Return whether a module is a program of one function, without operations of single devices,
    of stated meshes, or of pipelines, which need a mesh with their axis."""
    ops = list(module.main.body.walk())
    return (
        module.main.spmd is None
        and len(module.functions) == 1
        and not has_pipelines(module)
        and not any(op.spec.collective or "mesh" in op.attrs or "axes" in op.attrs for op in ops)
    )


@cache
def load_script(path: str) -> dict[str, Any]:
    """Return the names that an example or a benchmark defines."""
    return runpy.run_path(str(ROOT / path))


def struct(*shape: int, dtype: str = "float32") -> Any:
    return sd.ShapeDtypeStruct(shape, dtype)


def lower(function: Any, *args: Any) -> Module:
    module: Module = sd.jit(function).lower(*args).module
    return module


def structs_of(args: Any) -> Any:
    """Return structs with the types of arrays, without their shardings."""
    return sd.tree.map(lambda each: sd.ShapeDtypeStruct(each.shape, each.dtype), args)


def trace_digits() -> Module:
    names = load_script("examples/digits.py")
    params = structs_of(names["initial_params"]())
    return lower(names["train_step"], params, struct(128, 64), struct(128, 10))


def trace_context_attention() -> Module:
    names = load_script("examples/context_parallel_attention.py")
    operand = struct(2, names["LENGTH"], 4, names["SIZE"])
    return lower(names["attention"], operand, operand, operand)


def trace_experts() -> Module:
    names = load_script("examples/expert_parallelism.py")
    width, experts, hidden = names["WIDTH"], names["EXPERTS"], names["HIDDEN"]
    weights = struct(experts, width, hidden), struct(experts, hidden, width)
    tokens = struct(names["DEVICES"] * names["TOKENS"], width)
    return lower(names["layer_of_one_device"], struct(width, experts), *weights, tokens)


def trace_pipeline_model() -> Module:
    names = load_script("examples/pipeline_transformer.py")
    params = structs_of(names["initial_params"](np.random.default_rng(0)))
    tokens = struct(names["BATCH"], names["LENGTH"] + 1, dtype="int32")
    return lower(sd.value_and_grad(names["loss"]), params, tokens)


def trace_perceptron() -> Module:
    names = load_script("examples/collective_matmul.py")
    return lower(names["perceptron"], struct(64, 32), struct(32, 64), struct(64, 32))


def trace_transformer(layers: int) -> Module:
    names = load_script("benchmarks/transformer.py")
    return lower(names["train_step"], *structs_of(names["arguments"](layers, (1, 1, 1))))


def trace_workload(number: int) -> Module:
    workload = load_script("benchmarks/gpu_workloads.py")["workloads"](16)[number]
    args = [struct(*shape, dtype=workload.dtype) for shape in workload.shapes]
    library = SimpleNamespace(numpy=snp, nn=shardir.nn, top=sd)
    return lower(workload.ours(library), *args)


def list_workloads() -> dict[str, Trace]:
    """Return the workloads of GPUs, by name and dtype."""
    found = load_script("benchmarks/gpu_workloads.py")["workloads"](16)
    return {
        f"workload: {each.name}, {each.dtype}": partial(trace_workload, number)
        for number, each in enumerate(found)
    }


def read_story(path: Path) -> Module:
    """Return the first program of a story."""
    return parse(path.read_text(encoding="utf-8").partition("// =====")[0], path.name)


PUBLISHED: dict[str, Trace] = {
    f"published: {name}": row.trace for name, row in {**ALPA, **AUTOPARALLEL, **LLAMA}.items()
}
EXAMPLES: dict[str, Trace] = {
    "example: digits": trace_digits,
    "example: context_parallel_attention": trace_context_attention,
    "example: expert_parallelism": trace_experts,
    "example: pipeline_transformer": trace_pipeline_model,
    "example: collective_matmul": trace_perceptron,
}
BENCHMARKS: dict[str, Trace] = {
    **{f"benchmark: transformer, {n} layers": partial(trace_transformer, n) for n in (1, 2, 4, 8)},
    **list_workloads(),
}
OPERATIONS: dict[str, Trace] = {
    f"operation {number}: {sample.id}": sample.module for number, sample in enumerate(SAMPLES)
}
STORIES: dict[str, Trace] = {
    f"story: {path.stem}": partial(read_story, path)
    for path in sorted((ROOT / "tests/stories").glob("*.ir"))
}
RANDOM: dict[str, Trace] = {
    f"random program {seed}": partial(random_program, seed, size=RANDOM_OPERATIONS)
    for seed in range(RANDOM_PROGRAMS)
}
FAMILIES = {
    "published": PUBLISHED,
    "examples": EXAMPLES,
    "benchmarks": BENCHMARKS,
    "operations": OPERATIONS,
    "stories": STORIES,
    "random": RANDOM,
}


def plannable_programs(
    family: str, names: Iterable[str] | None = None
) -> Iterator[tuple[str, Module]]:
    """Yield the programs of a family, or those with some names, that a plan can have, without
    shardings."""
    for name in FAMILIES[family] if names is None else names:
        module = FAMILIES[family][name]()
        if is_plannable(module):
            yield name, remove_shardings(module)
