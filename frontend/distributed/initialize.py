"""Initialization of programs that run in several processes.

    import shardir as sd

    sd.distributed.initialize()           # shardir launch -n 2 program.py
    mesh = sd.make_mesh((8,), ("data",))  # four devices of each process

Without a launcher there is one process, and `initialize` does nothing.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence, Sized
from importlib.metadata import version
from inspect import signature

from shardir.backends.base import ProcessLink
from shardir.errors import count_noun, suggest_name
from shardir.frontend.argument_errors import locate_errors, with_argument_errors
from shardir.frontend.config import config
from shardir.frontend.distributed.connect import connect_processes, parse_address
from shardir.frontend.distributed.gather_api import barrier
from shardir.frontend.distributed.launcher_environment import (
    COORDINATOR_ARGUMENTS,
    JOINED_VARIABLE,
    LauncherInfo,
    Transport,
    find_launcher,
)
from shardir.frontend.distributed.processes import ProcessGroup, process_group, set_process_group
from shardir.frontend.errors import ArgumentError, DistributedError, SettingError
from shardir.frontend.shardings.devices import has_devices

NO_LAUNCHER = "no launcher"
"""The launcher name of a process that was started alone."""
DEFAULT_TIMEOUT_SECONDS = 300.0
"""Default time that a process waits for others, in seconds."""
TIMEOUT_VARIABLE = "SHARDIR_COMM_TIMEOUT"
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
    """Connect to the processes that `shardir launch`, torchrun, mpiexec, srun or a similar launcher
    started with this one.

    The devices, as many as the setting `num_cpu_devices`, are distributed over the processes in
    order; or each process has `local_device_count` devices. A process that waits for others for
    more than `timeout` seconds (300; `SHARDIR_COMM_TIMEOUT`) ends the job; `initialization_timeout`
    overrides that for this call. `gather` changes the setting of that name: reading an array that
    several processes hold gathers it.

    Without a launcher, the processes connect through the `coordinator_address` "host:port", at
    which process 0 listens; `num_processes` and the `process_id` of this one, from 0, are then
    required. With a launcher, these numbers are checked and the address is ignored. Other arguments
    are accepted for programs written for JAX.

    Call it before creating any array or device; a second call does nothing. Raises
    `DistributedError` when the launcher and MPI disagree, when processes have different settings,
    and when devices exist already.
    """
    _check_options(local_device_ids, local_device_count, of_coordinator)
    if is_initialized():
        return
    if gather is not None:
        config.update("gather", gather)
    found = find_launcher() or _launcher_of_arguments(
        coordinator_address, num_processes, process_id
    )
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
    world = connect_processes(found, coordinator_address, seconds, patience)
    _check_settings(world, local_device_count is not None)
    mine = local_device_count or _local_device_share(found)
    counts = [int(row) for row in world.gather(str(mine).encode(), "distributed.initialize()")]
    config.update("num_cpu_devices", sum(counts))
    set_process_group(ProcessGroup(found.rank, tuple(counts), world))
    os.environ[JOINED_VARIABLE] = str(os.getpid())


@with_argument_errors
def is_initialized() -> bool:
    """Return whether `initialize` has connected to other processes."""
    return process_group().link is not None


@with_argument_errors
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


def _launcher_of_arguments(
    address: str | None, count: int | None, index: int | None
) -> LauncherInfo:
    """Return the job that the arguments of `initialize` describe: all of them, or one process."""
    is_count = isinstance(count, int) and not isinstance(count, bool) and count > 1
    if address is None or not is_count or index is None:
        return LauncherInfo(NO_LAUNCHER, 1, 0)
    parse_address(address)
    assert isinstance(count, int)
    if not isinstance(index, int) or not 0 <= index < count:
        raise DistributedError(f"process_id is {index!r}; it must be from 0 to {count - 1}")
    return LauncherInfo(COORDINATOR_ARGUMENTS, count, index, Transport.SOCKETS)


def _check_launcher_arguments(
    found: LauncherInfo, count: int | None, index: int | None, address: str | None
) -> None:
    """Raise `DistributedError` for arguments that contradict the launcher."""
    alone = found.by is NO_LAUNCHER
    for name, claimed, actual in (
        ("num_processes", count, found.size),
        ("process_id", index, found.rank),
    ):
        if claimed is not None and claimed != actual:
            if not alone:
                raise DistributedError(
                    f"{name} is {claimed!r}, and {found.by} states {actual}; omit {name}"
                )
            least = max(2, (index if isinstance(index, int) else 0) + 1)
            shown = count if isinstance(count, int) and count > 1 else least
            raise DistributedError(
                f"{name} is {claimed!r}, and nothing started this process together with others; "
                f"start the program with shardir launch -n {shown} program.py, or pass "
                "coordinator_address, num_processes and process_id together"
            )
    if address is not None and count is None and alone:
        raise DistributedError(
            f"coordinator_address is {address!r}, and nothing started this process together with "
            "others; start the program with shardir launch -n 2 program.py, or pass num_processes "
            "and process_id too"
        )


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
