"""Backends: run or emit partitioned programs for CPUs, GPUs, IPUs and MPI jobs."""

from shardir.backends import fork_handlers as fork_handlers
from shardir.backends.base import (
    Backend as Backend,
    Executable as Executable,
    Shards as Shards,
    get_backend as get_backend,
)
