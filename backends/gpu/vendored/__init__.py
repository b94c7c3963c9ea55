"""What an emitted program runs on: torch, and nothing of shardir.

These files are written beside every program, as the folder `shardir_runtime`. A program says what
it is (`Program`: its mesh, and how its arguments and results are cut) and does its work in
`main(comm, *arguments)`, where `comm` speaks to the other devices of the mesh (`Comm`); `run` is
its command line.
"""

import os
from importlib.util import find_spec

from shardir.backends.gpu.vendored.command import run as run
from shardir.backends.gpu.vendored.program import Program as Program, Tensor as Tensor

if os.environ.get("TRITON_INTERPRET") == "1" and find_spec("triton") is not None:
    from shardir.backends.gpu.vendored.interpreting import complete_interpreter

    complete_interpreter()
