"""Warnings about limits of the operating system with which MPI ends the process while it starts.

MPI reports too few file descriptors, or a missing /proc, as an input/output error that names
neither, and too little shared memory as a bus error, a segmentation fault or an internal code. So
the warnings precede the start of MPI.
"""

import os
import sys

from shardir.caller_warnings import warn_caller

try:
    import resource
except ImportError:  # Windows has no such limits.
    resource = None  # type: ignore[assignment]

BASE_OPEN_FILES = 32
OPEN_FILES_PER_PROCESS = 4
"""MPICH 5 starts 2 and 4 processes with 34 and 38 file descriptors, and fails with 32 and 36."""
PROCESS_FOLDER = "/proc/self"


def warn_of_few_open_files(processes: int) -> None:
    """Warn if MPI may fail to start `processes` processes on this machine for lack of file
    descriptors."""
    if resource is None:
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = BASE_OPEN_FILES + processes * OPEN_FILES_PER_PROCESS
    if limit == resource.RLIM_INFINITY or limit >= needed:
        return
    noun = "process" if processes == 1 else "processes"
    warn_caller(
        f"a process may open {limit} files, and MPI may fail to start {processes} {noun} on this "
        f"machine; it needs about {needed}: raise the limit (ulimit -n 1024)",
        RuntimeWarning,
    )


def warn_of_missing_process_folder(folder: str = PROCESS_FOLDER) -> None:
    """Warn on Linux if /proc is not mounted, from which MPI reads the settings of the network."""
    if sys.platform != "linux" or os.path.isdir(folder):
        return
    warn_caller(
        f"{folder} does not exist, and MPI may fail to start; mount /proc (mount -t proc proc "
        "/proc)",
        RuntimeWarning,
    )


SHARED_MEMORY_FOLDER = "/dev/shm"
"""The folder of POSIX shared memory on Linux. A container engine gives it 64 MiB by default."""
BASE_BYTES = 8 << 20
BYTES_PER_PROCESS = 6 << 20
"""MPICH 5 starts 2, 4 and 16 processes on 18, 32 and 96 MiB, and fails on 16, 28 and 64 MiB."""
_MIB = 1 << 20


def warn_of_little_shared_memory(processes: int, folder: str = SHARED_MEMORY_FOLDER) -> None:
    """Warn if MPI may fail to start `processes` processes on this machine for lack of shared
    memory.

    It is only a warning because MPI may be configured to use none.
    """
    if not os.path.isdir(folder):
        return  # Other systems have no folder of shared memory.
    needed = BASE_BYTES + processes * BYTES_PER_PROCESS
    found = os.statvfs(folder)
    free = found.f_bavail * found.f_frsize
    if found.f_flag & os.ST_RDONLY or not os.access(folder, os.W_OK | os.X_OK):
        state = "is not writable"
    elif found.f_blocks and free < needed:
        state = f"has {free / _MIB:.1f} MiB free"
    else:
        return
    size, noun = needed // _MIB, "process" if processes == 1 else "processes"
    warn_caller(
        f"{folder} {state}, and MPI may fail to start {processes} {noun} on this machine; mount "
        f"{folder} writable with at least {size} MiB (docker run --shm-size={size}m)",
        RuntimeWarning,
    )
