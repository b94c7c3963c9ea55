"""Compile emitted IPU programs with a C++ compiler, and run them on this machine.

`include/` models the calls of emitted programs into Poplar and its libraries: all replicas run in
lock step, numbers are rounded as their types require, and calls that Poplar refuses, or may refuse,
raise errors. It does not simulate cycles or exchange. `runner/` has the headers that are written
beside every emitted program, for the model and the SDK. Start with `library.py`. See
docs/ipu_host_model.md.
"""

from shardir.backends.ipu.host_model.compiler import (
    Compiler as Compiler,
    HostModelError as HostModelError,
    find_compiler as find_compiler,
    include_folder as include_folder,
    runner_files as runner_files,
)
from shardir.backends.ipu.host_model.host_program import HostProgram as HostProgram, Port as Port
from shardir.backends.ipu.host_model.library import (
    build as build,
    build_and_run as build_and_run,
    build_executable as build_executable,
)
