"""Emitted programs run in this process, where groups are computed by their references."""

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
ALONE = Mesh("mesh", ())
RUNTIME = "shardir.backends.gpu.vendored"


def emission(module: Module) -> Emission:
    """A program for one device."""
    body = module.main.body
    ins, outs = ([_boundary(value) for value in values] for values in (body.params, body.returns))
    return Emission(module, ALONE, tuple(ins), tuple(outs), module.main.name)


def _boundary(value: Value) -> ProgramValue:
    whole = Sharding.fully_replicated(ALONE.name, value.type.rank)
    return ProgramValue(value.name, value.name, value.type, value.type, whole)


def text_of(function: Function | Module) -> str:
    """The program of a function for one device."""
    module = function if isinstance(function, Module) else Module((), (function,))
    return write_program(emission(module))[0]


def main_of(function: Function | Module) -> str:
    """The text of `main` alone."""
    text = text_of(function)
    return text[text.index("def main(") : text.index("\n\n\n# What it takes")]


def run_text(module: Module, args: list[Array]) -> list[Array]:
    """Return the results of a module's program on the test device."""
    text = text_of(module).replace("from shardir_runtime import", f"from {RUNTIME} import")
    space: dict[str, Any] = {"__name__": "program", "__file__": "program.py"}
    exec(compile(text, "program.py", "exec"), space)
    params = module.main.body.params
    given = [to_torch(x, p.type.dtype).to(DEVICE) for x, p in zip(args, params, strict=True)]
    with without_cpu_kernels():
        made = space["main"](SimpleNamespace(device=torch.device(DEVICE)), *given)
    return [seen(to_numpy(x), v) for x, v in zip(made, module.main.body.returns, strict=True)]


def seen(array: Array, value: Value) -> Array:
    """An array of the element type that its bits are of."""
    return array.view(value.type.numpy) if array.dtype.kind == "V" else np.asarray(array)
