"""Connection of this process to an MPI job, and compilation of programs for its processes."""

import atexit
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

from shardir._imports.lazy_import import lazy_import
from shardir.backends.base import Executable, Lower
from shardir.backends.distributed.communicator import Communicator
from shardir.backends.distributed.interpreted_program import InterpretedProgram
from shardir.backends.distributed.messages import end_job
from shardir.backends.distributed.process_blocks import process_blocks_of
from shardir.backends.distributed.world import World
from shardir.errors import MergeError
from shardir.ir.module import Module, spmd_mesh_of

if TYPE_CHECKING:
    from shardir.backends.distributed import compiled_program
else:
    compiled_program = lazy_import("shardir.backends.distributed.compiled_program")


class Job(World):
    """The link to all processes of the job; compiles programs that run on several processes."""

    def compile(
        self,
        module: Module,
        owners: Sequence[int],
        lower: Lower | None = None,
        *,
        checks_inputs: bool = True,
    ) -> Executable:
        if lower is not None and module.main.spmd and self.index in owners:
            blocks = process_blocks_of(spmd_mesh_of(module), owners, self.index)
            if blocks is not None:
                with suppress(MergeError):
                    return compiled_program.CompiledProgram(
                        module, lower, owners, blocks, self, checks_inputs=checks_inputs
                    )
        return InterpretedProgram(module, owners, self, checks_inputs=checks_inputs)


def connect(comm: Communicator, seconds: float, *, has_launcher: bool = True) -> Job:
    """Return the link to the processes of a communicator; a wait ends the job after `seconds`.

    The end of the parent of this process ends the job if it is a launcher.
    Afterwards an uncaught exception in any thread ends all processes.
    """
    job = Job(comm, seconds, has_launcher=has_launcher)
    if job.size > 1:
        _end_all_on_exceptions(job)
        atexit.register(job.wait_for_end)
    return job


def _end_all_on_exceptions(job: Job) -> None:
    before, before_in_threads = sys.excepthook, threading.excepthook
    where = job.process_name(job.index)

    def stop(name: str) -> None:
        end_job(job.comm, f"shardir: {where} ends the job, because of the {name} above", 1)

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        try:
            before(kind, error, trace)
        except Exception:
            with suppress(Exception):
                traceback.print_exception(kind, error, trace)
        stop(kind.__name__)

    def hook_in_threads(args: threading.ExceptHookArgs) -> None:
        with suppress(Exception):
            before_in_threads(args)
        if args.exc_type is not SystemExit:
            stop(args.exc_type.__name__)

    sys.excepthook, threading.excepthook = hook, hook_in_threads
