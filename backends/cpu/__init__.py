"""The native CPU backend: compiled programs, one native call for each step.

Input: one program over unsharded arrays, which `merge-devices` makes of the per-device program.
Output: an executable that runs on the worker threads of this process. Start reading in
`executable.py`; `schedule/` lowers a program to phases, `kernels/` emits the code of operations,
`codegen/` compiles LLVM IR, `threads/` runs the phases, `dispatch/` calls programs from Python.
"""

from shardir.backends.cpu.availability import is_available as is_available
from shardir.backends.cpu.backend import BACKEND as BACKEND, NativeBackend as NativeBackend
