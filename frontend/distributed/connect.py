"""Connection of this process to the others of its job, through MPI or sockets."""

import os
import secrets
import sys
from collections.abc import Callable
from importlib.util import find_spec

from shardir.backends.base import ProcessLink
from shardir.frontend.distributed.join_timeout import LOCAL_RANKS_VARIABLE, limit_join_time
from shardir.frontend.distributed.launcher_environment import (
    COORDINATOR_ARGUMENTS,
    COORDINATOR_VARIABLE,
    TOKEN_VARIABLE,
    LauncherInfo,
    Transport,
)
from shardir.frontend.distributed.process_limits_check import (
    warn_of_few_open_files,
    warn_of_little_shared_memory,
    warn_of_missing_process_folder,
)
from shardir.frontend.errors import DistributedError
from shardir.text.number_text import parse_natural_number

LOCAL_RANK_VARIABLE = "MPI_LOCALRANKID"
"""Environment variable in which mpiexec gives the rank among the processes on this machine."""
MAX_PORT = 65535
TORCHRUN_ADDRESS_VARIABLES = ("MASTER_ADDR", "MASTER_PORT")
TOKEN_BYTES = 16


def connect_processes(
    found: LauncherInfo, address: str | None, seconds: float, patience: float
) -> ProcessLink:
    """Return the link to the other processes, which must join within `patience` seconds.

    `address` is the coordinator address that the program passes; a launcher has another. A wait for
    a message ends the job after `seconds`. Raises `DistributedError` if the processes do not join.
    """
    if found.transport is Transport.MPI:
        return _connect_by_mpi(found, seconds, patience)
    # The runtime of several processes is imported only where there are several.
    from shardir.backends.distributed.job import connect
    from shardir.backends.distributed.sockets.rendezvous import JobAddress, join

    publish: Callable[[int], None] | None = None
    if found.transport is Transport.TORCH_STORE:
        host, port, token, publish = _torch_coordinator(found, patience)
    else:
        given = os.environ.get(COORDINATOR_VARIABLE)
        host, port = (
            parse_address(address or "")
            if given is None
            else parse_address(given, f"the environment variable {COORDINATOR_VARIABLE}")
        )
        token = os.environ.get(TOKEN_VARIABLE, "")
    job = JobAddress(host, port, token, found.size, found.rank)
    has_launcher = found.by != COORDINATOR_ARGUMENTS
    return connect(join(job, patience, publish), seconds, has_launcher=has_launcher)


def parse_address(text: str, name: str = "coordinator_address") -> tuple[str, int]:
    """Return the host and the port of "host:port"; `name` is where the text comes from."""
    host, _, port = text.rpartition(":")
    number = parse_natural_number(port)
    if not host or number is None or not 0 < number <= MAX_PORT:
        raise DistributedError(
            f"{name} is {text!r}; it must be a host and a port, such as '10.0.0.1:1234'"
        )
    return host.removeprefix("[").removesuffix("]"), number


def _torch_coordinator(
    found: LauncherInfo, seconds: float
) -> tuple[str, int, str, Callable[[int], None] | None]:
    """Return the host, port and token of process 0, which are in the store of torchrun.

    Process 0 chooses them, and publishes the port once it listens there.
    """
    try:
        from datetime import timedelta

        from torch.distributed import TCPStore
    except ImportError as error:
        raise DistributedError(
            f"torchrun started {found.size} processes, and torch cannot be imported: {error}"
        ) from error
    host, port = parse_address(
        ":".join(os.environ.get(name, "") for name in TORCHRUN_ADDRESS_VARIABLES),
        f"{':'.join(TORCHRUN_ADDRESS_VARIABLES)} of torchrun",
    )
    key = f"shardir/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    try:
        store = TCPStore(host, port, is_master=False, timeout=timedelta(seconds=seconds))
        if found.rank == 0:
            token = secrets.token_hex(TOKEN_BYTES)
            return host, 0, token, lambda chosen: store.set(key, f"{chosen} {token}")
        text = store.get(key).decode()
    except RuntimeError as error:  # The errors of torch.distributed are subclasses.
        why = str(error).partition("\n")[0]
        raise DistributedError(
            f"process {found.rank} finds no address of process 0 in the store of torchrun at "
            f"{host}:{port}: {why}; every process must call distributed.initialize()"
        ) from error
    chosen, _, token = text.partition(" ")
    return host, int(chosen), token, None


def _warn_before_start(found: LauncherInfo) -> None:
    """Warn, in one process of each machine, about a machine on which MPI may fail to start."""
    if os.environ.get(LOCAL_RANK_VARIABLE, str(found.rank)) == "0":
        count = parse_natural_number(os.environ.get(LOCAL_RANKS_VARIABLE, ""))
        # Without the variable, the other processes may be on other machines.
        warn_of_little_shared_memory(count or 1)
        warn_of_few_open_files(count or 1)
        warn_of_missing_process_folder()


def _connect_by_mpi(found: LauncherInfo, seconds: float, patience: float) -> ProcessLink:
    """Return the link to the other processes of a job of MPI.

    Raises `DistributedError` if MPI is not available.
    """
    if find_spec("mpi4py") is None:
        raise DistributedError(
            f"{found.by} started {found.size} processes, and mpi4py, which connects them, "
            "is not installed; pip install 'shardir[mpi]', or start the program with "
            "shardir launch, which needs no MPI"
        )
    _warn_before_start(found)
    with limit_join_time(found, patience):
        try:  # mpi4py is an optional dependency.
            from shardir.backends.distributed.job import connect
            from shardir.backends.distributed.mpi_communicator import world_communicator
        except (ImportError, RuntimeError) as error:
            why = str(error).partition("\n")[0]
            raise DistributedError(
                f"{found.by} started {found.size} processes, and mpi4py cannot be loaded: {why}; "
                "install an MPI for it, as pip install 'shardir[mpi]' does"
            ) from error
        world = connect(world_communicator(), seconds)
    if (world.size, world.index) != (found.size, found.rank):
        own = os.path.join(os.path.dirname(sys.executable), "mpiexec")
        raise DistributedError(
            f"{found.by} started {found.size} processes, and the MPI that mpi4py loads counts "
            f"{world.size}: they belong to different MPIs; start the program with the mpiexec of "
            f"the MPI that mpi4py uses, such as {own}"
        )
    return world
