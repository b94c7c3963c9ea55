"""Run programs operation by operation; the Triton interpreter runs the kernels of fused groups."""

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.backends.gpu.kernels import KernelText, TileSizes, helper_functions, write_kernel
from shardir.interpret.interpreter import apply_op
from shardir.ir.module import Module, Op, Value
from shardir.ir.types import NUMPY_DTYPES
from shardir.ops.control_flow.fused import fused
from shardir.ops.control_flow.fused_products import fused_products
from tests.backends.gpu.device import DEVICE, GPU
from tests.optional_dependencies import require

Array = npt.NDArray[Any]
ROOT = Path(__file__).parents[4]
SMALL_TILES = TileSizes(
    flat_elements=64,
    max_row_elements=32,
    row_step_elements=32,
    max_shared_row_elements=16,
    short_rows_tile_elements=64,
    tile_columns=8,
    row_step_of_columns=4,
    max_column_elements=8,
    min_programs=6,
    min_steps_per_part=1,
    score_tile_length=16,
)
"""Tile sizes for which small tensors use all kinds of kernels."""


def kernel_program(kernel: KernelText) -> str:
    """Return a program with one kernel: `group` takes the operands and returns the results."""
    helpers = [helper_functions()[name] for name in kernel.helpers]
    body = [f"    {line}" for line in kernel.launch.splitlines()]
    head = f"def group({', '.join(kernel.operands)}):"
    if not kernel.operands:
        body.insert(0, f'    device = "{DEVICE}"')
    body.append(f"    return [{', '.join(kernel.results)}]")
    parts = ["\n".join(kernel.imports), *helpers, kernel.text, "\n".join([head, *body])]
    return "\n\n\n".join(part.strip("\n") for part in parts) + "\n"


class Interpreter:
    """A process that interprets kernels."""

    def __init__(self) -> None:
        require("torch", "triton")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.backends.gpu.kernels.interpreter_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "TRITON_INTERPRET": "0" if GPU else "1", "OMP_NUM_THREADS": "1"},
        )

    def close(self) -> None:
        self.process.communicate()

    def group(self, kernel: KernelText, op: Op, args: Sequence[Array]) -> list[Array]:
        """Return the results of a group; raise `AssertionError` with the text of an error."""
        text = kernel_program(kernel)
        types = [value.type for value in op.operands]
        sent = [
            (x.view(np.int16) if type.dtype == "bf16" else x, type.dtype)
            for x, type in zip(args, types, strict=True)
        ]
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        pickle.dump((text, sent), self.process.stdin)
        self.process.stdin.flush()
        reply = pickle.load(self.process.stdout)
        assert not isinstance(reply, str), f"{reply}\n{text}"
        return [
            array.view(NUMPY_DTYPES["bf16"]) if value.type.dtype == "bf16" else array
            for array, value in zip(reply, op.results, strict=True)
        ]

    def run(
        self, module: Module, args: Sequence[npt.ArrayLike], sizes: TileSizes | None = None
    ) -> list[Array]:
        """Return the results of a program; raise `AssertionError` for a group without a kernel."""
        env: dict[Value, Array] = {
            param: np.asarray(arg) for param, arg in zip(module.main.body.params, args, strict=True)
        }
        for number, op in enumerate(module.main.body.ops):
            arrays = [env[value] for value in op.operands]
            if op.spec in (fused, fused_products):
                kernel = write_kernel(op, f"group_{number}", sizes)
                assert isinstance(kernel, KernelText), kernel
                outs = self.group(kernel, op, arrays)
            else:
                applied = apply_op(op, arrays)
                outs = list(applied) if isinstance(applied, tuple) else [applied]
            env.update(zip(op.results, outs, strict=True))
        return [env[value] for value in module.main.body.returns]
