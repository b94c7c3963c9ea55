"""Target and backend for GPUs.

The target emits a Python program: one Triton kernel per fused group of operations, torch for all
others. Input: a partitioned module (`Emission`). Output: the files of the program. Start with
`program.py`, then `lowering.py` and `rules/`; `kernels/` writes the Triton kernels, `library/` has
torch functions that are copied into programs, `vendored/` is the runtime of emitted programs, and
`backend.py` runs programs in this process.
"""

from shardir.backends.gpu.target import TARGET as TARGET
