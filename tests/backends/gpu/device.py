"""The device on which the tests of GPU programs run.

`SHARDIR_TEST_DEVICE=cuda` selects a GPU. Without it, the programs run with torch on the CPU, and
Triton interprets the kernels.
"""

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

GPU = os.environ.get("SHARDIR_TEST_DEVICE", "")
"""The name of the GPU in torch, or an empty string."""
DEVICE = GPU or "cpu"


def without_cpu_kernels(allow_host_reads: bool = True) -> AbstractContextManager[Any]:
    """Return a context in which torch on the CPU rejects operations without GPU kernels."""
    if GPU:
        return nullcontext()
    from tests.backends.gpu.gpu_op_restrictions import restrict_to_gpu_kernels

    return restrict_to_gpu_kernels(allow_host_reads)
