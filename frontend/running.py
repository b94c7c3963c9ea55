"""How programs run: on which device, whether compiled, and how hard a compiler is to try."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from shardir.frontend.devices import Device, find_device, local_devices
from shardir.frontend.errors import ArgumentError
from shardir.frontend.locations import point
from shardir.frontend.processes import here
from shardir.frontend.quoting import brief


@dataclass(frozen=True, slots=True)
class Conditions:
    """The device of programs that nothing else decides, and whether `jit` compiles none."""

    device: Device | None = None
    disabled: bool = False


USUAL = Conditions()

_conditions: ContextVar[Conditions] = ContextVar("shardir_conditions", default=USUAL)


def conditions() -> Conditions:
    """Those of the innermost blocks; the same object until one is entered or left."""
    return _conditions.get()


@contextmanager
def _under(changed: Conditions) -> Iterator[None]:
    token = _conditions.set(changed)
    try:
        yield
    finally:
        _conditions.reset(token)


def uncommitted_device() -> Device:
    """Where uncommitted arrays are: the first device of this process, unless a block says more."""
    if (chosen := conditions().device) is not None:
        return chosen
    return find_device(0) if here().count == 1 else local_devices()[0]


def default_device(device: Device | str | None) -> AbstractContextManager[None]:
    """A block in which arrays that nobody has placed are on `device`, where their programs run.

    `device` is one of `devices()`, the name of a platform for its first one, or `None` for the
    first of all. Raises `ArgumentError` for anything else, `DeviceError` for a name of none.
    """
    chosen = local_devices(backend=device)[0] if isinstance(device, str) else device
    if chosen is not None and not isinstance(chosen, Device):
        raise ArgumentError(
            point(f"default_device takes a device, a platform's name or None, got {device!r}")
        )
    return _on_device(chosen)


@contextmanager
def _on_device(device: Device | None) -> Iterator[None]:
    with _under(replace(conditions(), device=device)):
        yield


@contextmanager
def disable_jit(disable: bool = True) -> Iterator[None]:
    """A block in which `jit` calls the function as it is, operation by operation, to debug it.

    Loops and branches of `lax` stay programs.
    """
    with _under(replace(conditions(), disabled=disable)):
        yield


EFFORTS = (
    "exec_time_optimization_effort",
    "memory_fitting_effort",
    "memory_fitting_level",
    "optimization_level",
)
"""Options of XLA that say how hard to try; here there is one way of compiling."""


def check_compiler_options(
    options: Mapping[str, Any] | None, name: str, inside: bool = False
) -> None:
    """Raises `ArgumentError` for options that are none here, or for a part of a program."""
    if not (options is None or isinstance(options, Mapping)):
        raise ArgumentError(
            point(f"compiler_options of {name} are a dictionary, got {brief(options)}")
        )
    if options and inside:
        raise ArgumentError(
            point(
                f"{name} has compiler_options and is called inside of a program, which is compiled "
                "as one; give them to its jit"
            )
        )
    for option in options or ():
        if option not in EFFORTS:
            raise ArgumentError(
                point(
                    f"compiler_options of {name} has {option!r}, which is no option here; of XLA's "
                    f"there are {', '.join(EFFORTS)}, which change nothing"
                )
            )
