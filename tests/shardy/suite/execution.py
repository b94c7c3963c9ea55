"""Runs Shardy's executable tests: partitioned by our passes, with their inputs, on our interpreter.

A file has two parts. The first has functions with shardings; the second has a @main that divides
literal inputs, runs such functions on all devices (`interpreter.run_parallel`), and compares the
results (`check.expect_eq`).
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.errors import ShardirError
from shardir.interpret.interpreter import apply_op, evaluate, run_devices
from shardir.ir.module import Module, Op, Value
from shardir.passes.pipeline import SHARDY_PIPELINE, Pipeline
from shardir.passes.simplify.inline_calls import inline_calls
from tests.shardy.suite.check_files import Case
from tests.shardy.suite.op_listing import read_part

Array = npt.NDArray[Any]
PARTITION = Pipeline.parse(SHARDY_PIPELINE.removeprefix("propagate,"))
_PART = re.compile(r"//--- part(\d)\.mlir\n(.*?)(?=\n//---|\Z)", re.DOTALL)
_PROGRAM = re.compile(r"@([\w$.-]+)")
_MESH = re.compile(r"^sdy\.mesh .*$", re.MULTILINE)


def whole_file(text: str, file: str) -> list[Case]:
    return [Case(file, file.removesuffix(".mlir"), text)]


def execute(case: Case, passes: Callable[[Module], Module]) -> list[str]:
    """Return the differences from the expected results of the functions after the passes."""
    parts = {number: part for number, part in _PART.findall(case.part)}
    first = parts["1"]
    module, _ = read_part(first, case.file)
    # On one device, the same function runs without its shardings.
    plain = re.sub(r"@(?:parallel|transformed)_", _plain_name, _MESH.sub("", first))
    names = [function.name for function in module.functions]
    both = first
    if not any(name.startswith("sequential_") for name in names) and plain != _MESH.sub("", first):
        both += plain
    program, _ = read_part(both + parts["2"], case.file)
    runner = _Runner(passes(module), program)
    return runner.run()


def _plain_name(match: re.Match[str]) -> str:
    return "@sequential_" if "parallel" in match[0] else "@original_"


class _Runner:
    def __init__(self, module: Module, program: Module) -> None:
        self.module = module
        self.program = inline_calls(program)
        self.differences: list[str] = []
        self.values: dict[Value, Array] = {}
        self.compared = 0

    def run(self) -> list[str]:
        for op in self.program.main.body.ops:
            operands = [self.values[value] for value in op.operands]
            name = str(op.attrs.get("operation", op.name)) if op.name == "opaque" else op.name
            if name == "interpreter.run_parallel":
                results = self.parallel(op, operands)
            elif name.startswith("check.expect"):
                self.compare(op, operands)
                results = []
            elif name in ("reshard", "sharding_constraint"):
                results = operands
            else:
                made = apply_op(op, operands)
                results = list(made) if isinstance(made, tuple) else [made]
            self.values.update(zip(op.results, map(np.asarray, results), strict=True))
        return self.differences if self.compared else [*self.differences, "compares nothing"]

    def parallel(self, op: Op, operands: Sequence[Array]) -> list[Array]:
        """Run a function on all devices; programs and arguments are in the order of device ids."""
        names = _PROGRAM.findall(f"{op.attrs['head']} {op.attrs['attributes']}")
        if len(set(names)) != 1:
            raise ShardirError("devices run different programs")
        function = next(f for f in self.module.functions if _same(f.name, names[0]))
        alone = replace(self.module, functions=(function,))
        done = PARTITION(alone)
        count = len(operands) // len(names)
        given = [list(operands[i * count : (i + 1) * count]) for i in range(len(names))]
        spmd = done.main.spmd
        if spmd is None:
            made = [evaluate(done.main, args) for args in given]
            return [each for results in made for each in results]
        outer = (*spmd.params, *spmd.results)
        mesh = done.mesh(outer[0].sharding.mesh)
        ids = mesh.device_ids or tuple(range(mesh.size))
        made = run_devices(done.main, mesh, [given[i] for i in ids])
        by_id = dict(zip(ids, made, strict=True))
        return [each for i in range(len(names)) for each in by_id[i]]

    def compare(self, op: Op, operands: Sequence[Array]) -> None:
        got, want = operands
        self.compared += 1
        if got.dtype.kind in "fc":
            equal = np.allclose(got, want, rtol=1e-5, atol=1e-5, equal_nan=True)
        else:
            equal = np.array_equal(got, want)
        if not equal:
            self.differences.append(
                f"%{op.operands[0].name} is {got.tolist()}, not {want.tolist()}"
            )


def _same(name: str, program: str) -> bool:
    """Return whether a program is this function, possibly under the name of one of its
    lowerings.
    """
    return name == program or (name == "all_gather_test" and program.endswith("_gather"))
