"""The process that interprets kernels: it reads programs and writes arrays.

Triton decides at its import whether kernels are interpreted. Therefore tests run them in their own
process: `python -m tests.backends.gpu.kernels.interpreter_process` with TRITON_INTERPRET=1. If
SHARDIR_TEST_DEVICE names a GPU (`make gpu`), the process compiles the kernels and runs them there.
"""

import importlib.util
import pickle
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from traceback import format_exc
from typing import Any

import numpy as np
import torch

from shardir.backends.gpu.vendored.triton_interpreter import complete_interpreter
from tests.backends.gpu.device import DEVICE, GPU

BIT_VIEWED_TYPES = {"bf16": torch.bfloat16}


def tensor(array: Any, dtype: str) -> Any:
    """Return a tensor with the bits of an array."""
    viewed = torch.from_numpy(np.array(array)).to(DEVICE)
    return viewed.view(BIT_VIEWED_TYPES[dtype]) if dtype in BIT_VIEWED_TYPES else viewed


def bits(result: Any) -> Any:
    """Return an array with the bits of a tensor."""
    return (result.view(torch.int16) if result.dtype == torch.bfloat16 else result).cpu().numpy()


def run_group(folder: Path, number: int, text: str, args: list[tuple[Any, str]]) -> list[Any]:
    """Return the results of the function `group` of a program."""
    path = folder / f"program_{number}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [bits(result) for result in module.group(*(tensor(*arg) for arg in args))]


def main() -> None:
    if not GPU:
        complete_interpreter()
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    with TemporaryDirectory() as folder:
        for number in range(sys.maxsize):
            try:
                text, args = pickle.load(source)
            except EOFError:
                return
            try:
                answer: Any = run_group(Path(folder), number, text, args)
            except Exception:
                answer = format_exc()
            pickle.dump(answer, sink)
            sink.flush()


if __name__ == "__main__":
    main()
