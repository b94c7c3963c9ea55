"""The command `shardir launch`, which runs a program in several processes."""

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardir._imports.lazy_import import lazy_import
from shardir.errors import missing_file_reason
from shardir.frontend.cli.main import app
from shardir.frontend.cli.options import CommandError

if TYPE_CHECKING:
    from shardir.frontend.cli import process_launcher as process_launcher
    from shardir.frontend.distributed import connect
else:
    process_launcher = lazy_import("shardir.frontend.cli.process_launcher")
    connect = lazy_import("shardir.frontend.distributed.connect")


@app.command(
    name="launch",
    # Arguments after the program belong to the program, even if they look like options.
    context_settings={"allow_extra_args": True, "allow_interspersed_args": False},
    epilog="""Examples:

  shardir launch -n 4 train.py --steps 100

  shardir launch -n 2 -m mypackage.train

  shardir launch -n 2 shardir as-jax train.py

On two hosts with two processes each, where host0 is the first one:

  shardir launch -n 2 --hosts 2 --host-index 0 --coordinator host0:1234 train.py

  shardir launch -n 2 --hosts 2 --host-index 1 --coordinator host0:1234 train.py""",
)
def launch(
    context: typer.Context,
    program: Annotated[
        str, typer.Argument(help="a Python file, or a command; the arguments after it are its own")
    ],
    processes: Annotated[
        int, typer.Option("--processes", "-n", min=1, help="number of processes on this host")
    ],
    module: Annotated[
        bool, typer.Option("--module", "-m", help="the program is the name of a module")
    ] = False,
    hosts: Annotated[int, typer.Option(min=1, help="number of hosts of the job")] = 1,
    host_index: Annotated[int, typer.Option(min=0, help="index of this host, from 0")] = 0,
    coordinator: Annotated[
        str | None, typer.Option(help="host:port at which process 0 listens, for several hosts")
    ] = None,
) -> None:
    """Run a program in several processes.

    The program calls shardir.distributed.initialize(). MPI is not needed. If a process fails, the
    command ends the others, and exits with the exit code of that process. Processes that only
    waited for it end with exit code 13 or 16.
    """
    if hosts > 1 and coordinator is None:
        raise CommandError("several hosts need --coordinator, the host and a port of host 0")
    if host_index >= hosts:
        raise CommandError(f"--host-index is {host_index}; it must be from 0 to {hosts - 1}")
    if coordinator is not None:
        connect.parse_address(coordinator, "--coordinator")
    first, size = host_index * processes, hosts * processes
    code = process_launcher.launch(
        [*_command(program, module), *context.args], processes, coordinator or "", first, size
    )
    raise SystemExit(code)


def _command(program: str, module: bool) -> list[str]:
    """Return the words that start a program."""
    if module:
        return [sys.executable, "-m", program]
    if Path(program).suffix == ".py":
        if not os.path.isfile(program):
            raise CommandError(f"cannot run {program!r}: {missing_file_reason(program)}")
        return [sys.executable, program]
    found = shutil.which(program)
    if found is None:
        raise CommandError(
            f"there is no command {program!r}; name a file that ends in .py, or a module with -m"
        )
    return [found]
