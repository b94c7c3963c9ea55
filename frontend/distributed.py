"""Joining the processes that run the same program.

    import shardir as sd

    sd.distributed.initialize()           # mpiexec -n 2 python program.py
    mesh = sd.make_mesh((8,), ("data",))  # four devices of each

Without mpiexec there is one process, and `initialize` does nothing.
"""

import os
import sys
from importlib.util import find_spec

from shardir.backends.base import Link
from shardir.errors import counted
from shardir.frontend.config import config
from shardir.frontend.devices import any_named
from shardir.frontend.errors import DistributedError, SettingError
from shardir.frontend.launched import Launch, launch
from shardir.frontend.locations import pointed
from shardir.frontend.processes import Processes, here, join

TIMEOUT_SECONDS = 300.0
"""How long a process waits for others unless told otherwise."""
TIMEOUT_VARIABLE = "SHARDIR_COMM_TIMEOUT"
OWN_SETTINGS = ("num_cpu_devices", "dump_dir")
"""Settings in which processes may differ."""


@pointed
def initialize(
    *,
    num_processes: int | None = None,
    process_id: int | None = None,
    local_device_count: int | None = None,
    timeout: float | None = None,
    gather: bool | None = None,
) -> None:
    """Join the processes that mpiexec, srun or the like started together with this one.

    The devices, as many as the setting `num_cpu_devices` says, are dealt out to the processes in
    order; or each process has `local_device_count` of its own. A process that waits for others for
    longer than `timeout` seconds (300; `SHARDIR_COMM_TIMEOUT`) ends the job. With `gather`, the
    setting of that name, reading an array that several processes hold gathers it. `num_processes`
    and `process_id`, if given, are checked against what the launcher says.

    Called first, before any array or device; again, it does nothing. Raises `DistributedError`
    when the launcher and MPI disagree, when processes have other settings, or when it is too late.
    """
    if is_initialized():
        return
    if gather is not None:
        config.update("gather", gather)
    found = launch() or Launch("no launcher", 1, 0)
    _check_claims(found, num_processes, process_id)
    if local_device_count is not None and local_device_count < 1:
        raise DistributedError(
            f"local_device_count is {local_device_count}; every process has a device at least"
        )
    if found.size == 1:
        if local_device_count is not None:
            config.update("num_cpu_devices", local_device_count)
        return
    if any_named():
        raise DistributedError(
            "distributed.initialize() comes too late: this program has named devices already, by "
            "an array, a mesh or devices(); call it first"
        )
    world = _connect(found, timeout_seconds(timeout))
    _check_settings(world)
    mine = local_device_count or _share(found)
    counts = [int(row) for row in world.gather(str(mine).encode(), "distributed.initialize()")]
    config.update("num_cpu_devices", sum(counts))
    join(Processes(found.rank, tuple(counts), world))


def is_initialized() -> bool:
    """Whether `initialize` has found other processes."""
    return here().link is not None


def _check_claims(found: Launch, count: int | None, index: int | None) -> None:
    for name, claimed, said in (
        ("num_processes", count, found.size),
        ("process_id", index, found.rank),
    ):
        if claimed is not None and claimed != said:
            raise DistributedError(
                f"{name} is {claimed}, and {found.by} says {said}; start the program with "
                f"mpiexec -n {count if count is not None else found.size} python ..., and leave "
                f"{name} out"
            )


def _connect(found: Launch, seconds: float) -> Link:
    """The way to the other processes; raises `DistributedError` when there is none."""
    if find_spec("mpi4py") is None:
        raise DistributedError(
            f"{found.by} started {found.size} processes, and mpi4py, by which they reach one "
            "another, is not installed; pip install 'shardir[mpi]'"
        )
    from shardir.backends.mpi import connect

    world = connect(seconds)
    if (world.size, world.index) != (found.size, found.rank):
        own = os.path.join(os.path.dirname(sys.executable), "mpiexec")
        raise DistributedError(
            f"{found.by} started {found.size} processes, and the MPI that mpi4py loads sees "
            f"{world.size}: they are of different makes; start the program with the mpiexec of "
            f"the MPI that mpi4py uses, such as {own}"
        )
    return world


def timeout_seconds(given: float | None) -> float:
    """How long a process waits for others: as told, or as the environment says."""
    text = os.environ.get(TIMEOUT_VARIABLE, "")
    try:
        seconds = given if given is not None else float(text or TIMEOUT_SECONDS)
    except ValueError:
        raise SettingError(
            f"the environment variable {TIMEOUT_VARIABLE} is {text!r}; it must be a number of "
            "seconds"
        ) from None
    if not seconds > 0:
        raise SettingError(f"a timeout of {seconds} seconds is none; it must be above 0")
    return seconds


def _share(found: Launch) -> int:
    """How many of the devices are this process's."""
    count = config.num_cpu_devices
    if count < found.size:
        raise DistributedError(
            f"{counted(count, 'device')} cannot be dealt out to {found.size} processes; pass "
            f"local_device_count=1, or set SHARDIR_CPU_DEVICES={found.size}"
        )
    return count // found.size + (found.rank < count % found.size)


def _check_settings(world: Link) -> None:
    """Raises `DistributedError` naming a setting that is not the same in all processes."""
    mine = {name: repr(value) for name, value in config.snapshot() if name not in OWN_SETTINGS}
    text = "\n".join(f"{name}={value}" for name, value in mine.items())
    rows = world.gather(text.encode(), "distributed.initialize()")
    for process, row in enumerate(rows):
        for first, other in zip(
            rows[0].decode().split("\n"), row.decode().split("\n"), strict=True
        ):
            if first != other:
                raise DistributedError(
                    f"process 0 has the setting {first}, and process {process} has {other}; "
                    "every process must have the same settings"
                )
