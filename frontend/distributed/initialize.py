"""Initialization of programs that run in several processes.

    import shardir as sd

    sd.distributed.initialize()           # mpiexec -n 2 python program.py
    mesh = sd.make_mesh((8,), ("data",))  # four devices of each process

Without mpiexec there is one process, and `initialize` does nothing.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence, Sized
from importlib.metadata import version
from importlib.util import find_spec
from inspect import signature

from shardir.backends.base import ProcessLink
from shardir.errors import count_noun, suggest_name
from shardir.frontend.argument_errors import locate_errors
from shardir.frontend.config import config
from shardir.frontend.distributed.gather_api import barrier
from shardir.frontend.distributed.join_timeout import LOCAL_RANKS_VARIABLE, limit_join_time
from shardir.frontend.distributed.launcher_environment import (
    JOINED_VARIABLE,
    LauncherInfo,
    find_launcher,
)
from shardir.frontend.distributed.process_limits_check import (
    warn_of_few_open_files,
    warn_of_missing_process_folder,
)
from shardir.frontend.distributed.processes import ProcessGroup, process_group, set_process_group
from shardir.frontend.distributed.shared_memory_check import warn_of_little_shared_memory
from shardir.frontend.errors import ArgumentError, DistributedError, SettingError
from shardir.frontend.shardings.devices import has_devices
from shardir.text.decimal_text import parse_natural_number

NO_LAUNCHER = "no launcher"
"""The launcher name of a process that was started alone."""
DEFAULT_TIMEOUT_SECONDS = 300.0
"""Default time that a process waits for others, in seconds."""
TIMEOUT_VARIABLE = "SHARDIR_COMM_TIMEOUT"
LOCAL_RANK_VARIABLE = "MPI_LOCALRANKID"
"""Environment variable in which mpiexec gives the rank among the processes on this machine."""
PER_PROCESS_SETTINGS = ("dump_dir",)
"""Settings that may differ between processes."""
DEVICE_COUNT_SETTING = "num_cpu_devices"
IGNORED_COORDINATOR_OPTIONS = (
    "cluster_detection_method",
    "coordinator_bind_address",
    "heartbeat_timeout_seconds",
    "shutdown_timeout_seconds",
)
"""Options of `jax.distributed.initialize` about its coordinator, which are accepted and ignored."""


@locate_errors
def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    local_device_ids: int | Sequence[int] | None = None,
    *,
    local_device_count: int | None = None,
    timeout: float | None = None,
    initialization_timeout: float | None = None,
    gather: bool | None = None,
    **of_coordinator: object,
) -> None:
    """Connect to the processes that mpiexec, srun or a similar launcher started with this one.

    The devices, as many as the setting `num_cpu_devices`, are distributed over the processes in
    order; or each process has `local_device_count` devices. A process that waits for others for
    more than `timeout` seconds (300; `SHARDIR_COMM_TIMEOUT`) ends the job; `initialization_timeout`
    overrides that for this call. `gather` changes the setting of that name: reading an array that
    several processes hold gathers it.

    Other arguments are accepted for programs written for JAX. `num_processes` and `process_id` are
    checked against the launcher; `coordinator_address` is ignored, because MPI locates the
    processes.

    Call it before creating any array or device; a second call does nothing. Raises
    `DistributedError` when the launcher and MPI disagree, when processes have different settings,
    and when devices exist already.
    """
    _check_options(local_device_ids, local_device_count, of_coordinator)
    if is_initialized():
        return
    if gather is not None:
        config.update("gather", gather)
    found = find_launcher() or LauncherInfo(NO_LAUNCHER, 1, 0)
    _check_launcher_arguments(found, num_processes, process_id, coordinator_address)
    seconds = timeout_seconds(timeout)
    patience = timeout_seconds(
        seconds if initialization_timeout is None else initialization_timeout
    )
    if found.size == 1:
        if local_device_count is not None:
            config.update("num_cpu_devices", local_device_count)
        return
    if has_devices():
        raise DistributedError(
            "distributed.initialize() is called too late: this program has created devices by "
            "an array, a mesh or devices(); call it first"
        )
    world = _connect(found, seconds, patience)
    _check_settings(world, local_device_count is not None)
    mine = local_device_count or _local_device_share(found)
    counts = [int(row) for row in world.gather(str(mine).encode(), "distributed.initialize()")]
    config.update("num_cpu_devices", sum(counts))
    set_process_group(ProcessGroup(found.rank, tuple(counts), world))
    os.environ[JOINED_VARIABLE] = str(os.getpid())


def is_initialized() -> bool:
    """Return whether `initialize` has connected to other processes."""
    return process_group().link is not None


def shutdown() -> None:
    """Wait until all processes have reached this call, as each does at the end of its program.

    It exists for programs written for JAX, and does not disconnect the processes.
    """
    barrier("distributed.shutdown()")


def _check_options(ids: object, devices: object, others: Mapping[str, object]) -> None:
    """Raise an error for arguments of `initialize` that are invalid."""
    if devices is not None and not isinstance(devices, int):
        raise DistributedError(f"local_device_count is {devices!r}; it must be an integer")
    if isinstance(devices, int) and devices < 1:
        raise DistributedError(
            f"local_device_count is {devices}; every process has at least one device"
        )
    if ids is not None:
        count = 1 if isinstance(ids, int) or not isinstance(ids, Sized) else len(ids)
        raise DistributedError(
            f"local_device_ids is {ids!r}, and the devices of a process cannot be chosen; "
            f"pass local_device_count={count}"
        )
    for name in others:
        if name not in IGNORED_COORDINATOR_OPTIONS:
            known = tuple(signature(initialize).parameters)[:-1]
            hint = suggest_name(name, known) or f"it takes {', '.join(known)}"
            raise ArgumentError(f"distributed.initialize() takes no {name!r}; {hint}")


def _check_launcher_arguments(
    found: LauncherInfo, count: int | None, index: int | None, address: str | None
) -> None:
    """Raise `DistributedError` for arguments that contradict the launcher."""
    alone = found.by is NO_LAUNCHER
    for name, claimed, said in (
        ("num_processes", count, found.size),
        ("process_id", index, found.rank),
    ):
        if claimed is not None and claimed != said:
            what = "nothing started this process together with others"
            least = (
                max(found.size, (index if isinstance(index, int) else 0) + 1)
                if count is None
                else count
            )
            raise DistributedError(
                f"{name} is {claimed!r}, and {what if alone else f'{found.by} says {said}'}; start "
                f"the program with mpiexec -n {least} python ..., and omit {name}"
            )
    if address is not None and count is None and alone:
        raise DistributedError(
            f"coordinator_address is {address!r}, and nothing started this process together with "
            "others; processes connect through MPI: start the program with "
            "mpiexec -n 2 python ..., and omit coordinator_address"
        )


def _warn_before_start(found: LauncherInfo) -> None:
    """Warn, in one process of each machine, about a machine on which MPI may fail to start."""
    if os.environ.get(LOCAL_RANK_VARIABLE, str(found.rank)) == "0":
        count = parse_natural_number(os.environ.get(LOCAL_RANKS_VARIABLE, ""))
        # Without the variable, the other processes may be on other machines.
        warn_of_little_shared_memory(count or 1)
        warn_of_few_open_files(count or 1)
        warn_of_missing_process_folder()


def _connect(found: LauncherInfo, seconds: float, patience: float) -> ProcessLink:
    """Return the link to the other processes, which must join within `patience` seconds.

    Raises `DistributedError` if MPI is not available.
    """
    if find_spec("mpi4py") is None:
        raise DistributedError(
            f"{found.by} started {found.size} processes, and mpi4py, which connects them, "
            "is not installed; pip install 'shardir[mpi]'"
        )
    _warn_before_start(found)
    with limit_join_time(found, patience):
        try:  # mpi4py is an optional dependency.
            from shardir.backends.mpi import connect
        except (ImportError, RuntimeError) as error:
            why = str(error).partition("\n")[0]
            raise DistributedError(
                f"{found.by} started {found.size} processes, and mpi4py cannot be loaded: {why}; "
                "install an MPI for it, as pip install 'shardir[mpi]' does"
            ) from error
        world = connect(seconds)
    if (world.size, world.index) != (found.size, found.rank):
        own = os.path.join(os.path.dirname(sys.executable), "mpiexec")
        raise DistributedError(
            f"{found.by} started {found.size} processes, and the MPI that mpi4py loads sees "
            f"{world.size}: they belong to different MPIs; start the program with the mpiexec of "
            f"the MPI that mpi4py uses, such as {own}"
        )
    return world


def timeout_seconds(given: float | None) -> float:
    """Return the time that a process waits for others: the argument, the environment or the
    default."""
    text = os.environ.get(TIMEOUT_VARIABLE, "")
    try:
        seconds = given if given is not None else float(text or DEFAULT_TIMEOUT_SECONDS)
    except ValueError:
        raise SettingError(
            f"the environment variable {TIMEOUT_VARIABLE} is {text!r}; it must be a number of "
            "seconds"
        ) from None
    if not isinstance(seconds, (int, float)) or not seconds > 0:
        raise SettingError(f"a timeout of {seconds!r} seconds is invalid; it must be above 0")
    return seconds


def _local_device_share(found: LauncherInfo) -> int:
    """Return the number of devices of this process."""
    count = config.num_cpu_devices
    if count < found.size:
        raise DistributedError(
            f"{count_noun(count, 'device')} cannot be distributed over {found.size} processes; "
            "pass "
            f"local_device_count=1, or set SHARDIR_CPU_DEVICES={found.size}"
        )
    return count // found.size + (found.rank < count % found.size)


def _check_settings(world: ProcessLink, counted_here: bool) -> None:
    """Raise `DistributedError` that names a setting that differs between processes.

    If each process gives its own number of devices, the setting for their total is not compared.
    """
    own = (*PER_PROCESS_SETTINGS, DEVICE_COUNT_SETTING) if counted_here else PER_PROCESS_SETTINGS
    mine = {name: repr(value) for name, value in config.snapshot() if name not in own}
    python = ".".join(map(str, sys.version_info[:2]))
    beside = {"Python": python, "NumPy": version("numpy")}
    message = {"version": version("shardir"), "beside": beside, "settings": mine}
    rows = world.gather(json.dumps(message).encode(), "distributed.initialize()")
    first = json.loads(rows[0])
    for process, row in enumerate(rows):
        other = json.loads(row)
        # Another version of shardir may send fewer entries.
        runs, others = ({"shardir": r["version"], **r.get("beside", {})} for r in (first, other))
        for name, one in runs.items():
            if one != (two := others.get(name)):
                raise DistributedError(
                    f"{world.process_name(0)} runs {name} {one}, and "
                    f"{world.process_name(process)} {two}; install "
                    "the same version for all"
                )
        ours, theirs = first["settings"], other["settings"]
        if (DEVICE_COUNT_SETTING in ours) != (DEVICE_COUNT_SETTING in theirs):
            who = [world.process_name(0), world.process_name(process)]
            without, given = who if DEVICE_COUNT_SETTING in ours else reversed(who)
            raise DistributedError(
                f"{given} has a local_device_count, and {without} has none; pass it in every "
                "process, or in none"
            )
        for name in ours:
            if ours[name] != theirs[name]:
                raise DistributedError(
                    f"process 0 has the setting {name}={ours[name]}, and process {process} has "
                    f"{name}={theirs[name]}; every process must have the same settings"
                )
