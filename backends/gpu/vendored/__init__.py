"""Runtime of emitted programs: it needs torch, and no part of shardir.

The emitter writes these files beside every program, as the folder `shardir_runtime`. A program
declares its mesh, arguments and results with their shardings (`Program`), and computes in
`main(comm, *arguments)`, where `comm` communicates with the other devices of the mesh (`Comm`);
`run` is its command line. Start with `command.py`, then `worker.py` and `comm.py`.
"""

import os
from importlib.util import find_spec

from shardir.backends.gpu.vendored.command import run as run
from shardir.backends.gpu.vendored.pipeline_runtime import (
    Combined as Combined,
    Gradient as Gradient,
    Pass as Pass,
    Pipeline as Pipeline,
    Sent as Sent,
    run_pipeline as run_pipeline,
)
from shardir.backends.gpu.vendored.program_description import Program as Program, Tensor as Tensor

if os.environ.get("TRITON_INTERPRET") == "1" and find_spec("triton") is not None:
    from shardir.backends.gpu.vendored.triton_interpreter import complete_interpreter

    complete_interpreter()
