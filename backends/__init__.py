"""Backends: run or emit partitioned programs for CPUs, GPUs, IPUs and MPI jobs.

Input: modules that passes have partitioned for the devices of a mesh. Output: executables that take
and return shards, or emitted program files. Start with `base.py` (the interface `Backend`), then
`numpy/` (the reference backend) and `cpu/` (compiled programs).
"""

from shardir.backends import fork_handlers as fork_handlers
from shardir.backends.base import (
    Backend as Backend,
    Executable as Executable,
    Shards as Shards,
    get_backend as get_backend,
)
