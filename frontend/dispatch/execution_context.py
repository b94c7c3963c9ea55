"""Execution context of programs: the default device, whether `jit` compiles, and whether indices
are checked. Compiler options."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.distributed.processes import process_group
from shardir.frontend.errors import ArgumentError, CompilerOptionError
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.quoting import brief
from shardir.frontend.shardings.devices import Device, find_device, local_devices
from shardir.frontend.source_locations import with_location


@dataclass(frozen=True, slots=True)
class ExecutionContext:
    """The device of programs without committed arguments, whether `jit` is disabled, and whether
    `checkify` checks indices."""

    device: Device | None = None
    jit_disabled: bool = False
    checks_indices: bool = False


DEFAULT_CONTEXT = ExecutionContext()

_execution_context: ContextVar[ExecutionContext] = ContextVar(
    "shardir_conditions", default=DEFAULT_CONTEXT
)


def execution_context() -> ExecutionContext:
    """Return the execution context of the innermost block; one object until a block is entered or
    left."""
    return _execution_context.get()


@contextmanager
def _use_context(changed: ExecutionContext) -> Iterator[None]:
    token = _execution_context.set(changed)
    try:
        yield
    finally:
        _execution_context.reset(token)


def default_array_device() -> Device:
    """Return the device of uncommitted arrays: by default the first device of this process."""
    if (chosen := execution_context().device) is not None:
        return chosen
    return find_device(0) if process_group().count == 1 else local_devices()[0]


@with_argument_errors
def default_device(device: Device | str | None) -> AbstractContextManager[None]:
    """Return a context manager that makes `device` the device of uncommitted arrays.

    `device` is one of `devices()`, the name of a platform for its first device, or `None` for the
    first device of the default platform. Raises `ArgumentError` for anything else, and
    `DeviceError` for an unknown platform name.
    """
    return _use_default_device(_as_device(device))


def _as_device(device: Device | str | None) -> Device | None:
    chosen = local_devices(backend=device)[0] if isinstance(device, str) else device
    if chosen is not None and not isinstance(chosen, Device):
        raise ArgumentError(
            with_location(
                f"default_device takes a device, a platform's name or None, got {device!r}"
            )
        )
    return chosen


@contextmanager
def _use_default_device(device: Device | None) -> Iterator[None]:
    with _use_context(replace(execution_context(), device=device)):
        yield


@with_argument_errors
@contextmanager
def disable_jit(disable: bool = True) -> Iterator[None]:
    """Run functions without compilation inside the block, operation by operation, for debugging.

    Loops and branches of `lax` are still compiled.
    """
    with _use_context(replace(execution_context(), jit_disabled=disable)):
        yield


@contextmanager
def check_indices(checks: bool) -> Iterator[None]:
    """Trace functions such that the indices that they state can be checked, or not."""
    with _use_context(replace(execution_context(), checks_indices=checks)):
        yield


@contextmanager
def restore_execution_context() -> Iterator[None]:
    """Undo the effects of the following functions at the end of the block."""
    with _use_context(execution_context()):
        yield


def set_default_device(device: Device | str | None) -> None:
    """Change the device of uncommitted arrays in this thread; see `default_device`."""
    _execution_context.set(replace(execution_context(), device=_as_device(device)))


def set_jit_disabled(disable: bool) -> None:
    """Change whether `jit` is disabled in this thread; see `disable_jit`."""
    _execution_context.set(replace(execution_context(), jit_disabled=disable))


IGNORED_COMPILER_OPTIONS = (
    "exec_time_optimization_effort",
    "memory_fitting_effort",
    "memory_fitting_level",
    "optimization_level",
)
"""Options of XLA that select an optimization level; they have no effect here."""


def check_compiler_options(
    options: Mapping[str, PyTree] | None, name: str, inside: bool = False
) -> None:
    """Raise `ArgumentError` for unknown options, and for options of an inlined call."""
    if not (options is None or isinstance(options, Mapping)):
        raise ArgumentError(
            with_location(f"compiler_options of {name} are a dictionary, got {brief(options)}")
        )
    if options and inside:
        raise ArgumentError(
            with_location(
                f"{name} has compiler_options and is called inside of a program, which is compiled "
                "as one; give them to its jit"
            )
        )
    for option in options or ():
        if option not in IGNORED_COMPILER_OPTIONS:
            raise CompilerOptionError(
                with_location(
                    f"compiler_options of {name} has {option!r}, which is unknown; the options of "
                    "XLA that are accepted, without effect, are "
                    f"{', '.join(IGNORED_COMPILER_OPTIONS)}"
                )
            )
