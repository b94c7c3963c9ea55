"""Run emitted programs in this process; reference functions compute the fused groups."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from shardir.backends.emission import Emission, ProgramValue
from shardir.backends.gpu.program_text import write_program
from shardir.backends.gpu.vendored.arrays import to_numpy, to_torch
from shardir.ir.mesh import Mesh
from shardir.ir.module import Function, Module, Value
from shardir.ir.sharding import Sharding
from tests.backends.gpu.device import DEVICE, without_cpu_kernels

Array = npt.NDArray[Any]
ONE_DEVICE_MESH = Mesh("mesh", ())
RUNTIME = "shardir.backends.gpu.vendored"


def one_device_emission(module: Module) -> Emission:
    """Return the emission of a program for one device."""
    body = module.main.body
    ins, outs = (
        [_program_value(value) for value in values] for values in (body.params, body.returns)
    )
    return Emission(module, ONE_DEVICE_MESH, tuple(ins), tuple(outs), module.main.name)


def _program_value(value: Value) -> ProgramValue:
    replicated = Sharding.fully_replicated(ONE_DEVICE_MESH.name, value.type.rank)
    return ProgramValue(value.name, value.name, value.type, value.type, replicated)


def program_text(function: Function | Module) -> str:
    """Return the program text of a function for one device."""
    module = function if isinstance(function, Module) else Module((), (function,))
    return write_program(one_device_emission(module))[0]


def main_function_text(function: Function | Module) -> str:
    """Return the text of `main` only."""
    text = program_text(function)
    return text[text.index("def main(") : text.index("\n\n\n# What it takes")]


def run_text(module: Module, args: list[Array]) -> list[Array]:
    """Return the results of a module's program on the test device."""
    text = program_text(module).replace("from shardir_runtime import", f"from {RUNTIME} import")
    namespace: dict[str, Any] = {"__name__": "program", "__file__": "program.py"}
    exec(compile(text, "program.py", "exec"), namespace)
    params = module.main.body.params
    arguments = [to_torch(x, p.type.dtype).to(DEVICE) for x, p in zip(args, params, strict=True)]
    with without_cpu_kernels():
        results = namespace["main"](SimpleNamespace(device=torch.device(DEVICE)), *arguments)
    return [
        view_as_element_type(to_numpy(x), v)
        for x, v in zip(results, module.main.body.returns, strict=True)
    ]


def view_as_element_type(array: Array, value: Value) -> Array:
    """Return an array viewed as the element type of a value."""
    return array.view(value.type.numpy) if array.dtype.kind == "V" else np.asarray(array)
