"""Backends: how a partitioned program runs on real devices."""

from shardir.backends import forking as forking
from shardir.backends.base import (
    Backend as Backend,
    Executable as Executable,
    Shards as Shards,
    get_backend as get_backend,
)
