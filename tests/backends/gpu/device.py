"""The device on which the tests of GPU programs run.

`SHARDIR_TEST_DEVICE=cuda` selects a GPU. Without it, torch's CPU stands for the GPU, and Triton
interprets the kernels.
"""

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

GPU = os.environ.get("SHARDIR_TEST_DEVICE", "")
"""The name of the GPU in torch, or an empty string."""
DEVICE = GPU or "cpu"


def without_cpu_kernels(reads: bool = True) -> AbstractContextManager[Any]:
    """Return a context in which torch refuses, on the CPU too, what it has no GPU kernels for."""
    if GPU:
        return nullcontext()
    from tests.backends.gpu.gpu_op_restrictions import as_on_gpus

    return as_on_gpus(reads)
