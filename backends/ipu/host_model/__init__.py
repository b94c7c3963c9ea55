"""Emitted IPU programs compiled with a C++ compiler of this machine, and run here.

`include/` is a model of the calls that emitted programs make into Poplar and its libraries: all
replicas in lock step, numbers rounded as their types are, and everything that Poplar would refuse
refused, and what is uncertain too. It is no simulator: it knows nothing of cycles or of exchange.
`runner/` are the headers that are written beside every emitted program, for the model and for the
real SDK alike. See docs/ipu_host_model.md.
"""

from shardir.backends.ipu.host_model.compiler import (
    Compiler as Compiler,
    HostModelError as HostModelError,
    find_compiler as find_compiler,
)
from shardir.backends.ipu.host_model.library import (
    build as build,
    build_and_run as build_and_run,
    build_executable as build_executable,
)
from shardir.backends.ipu.host_model.places import (
    include_folder as include_folder,
    runner_files as runner_files,
)
from shardir.backends.ipu.host_model.program import HostProgram as HostProgram, Port as Port
