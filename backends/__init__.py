"""Backends: run or emit partitioned programs for CPUs, GPUs, IPUs and MPI jobs."""

from shardir.backends import forking as forking
from shardir.backends.base import (
    Backend as Backend,
    Executable as Executable,
    Shards as Shards,
    get_backend as get_backend,
)
