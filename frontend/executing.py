"""What runs a program: this process alone, or several processes together."""

from collections.abc import Callable, Sequence
from typing import Any

from shardir.backends.base import Backend, Executable, WholeExecutable, get_backend
from shardir.backends.cpu.native import available
from shardir.errors import MergeError
from shardir.frontend.config import config
from shardir.frontend.devices import Device
from shardir.frontend.processes import here
from shardir.ir import Module
from shardir.passes.pipeline import Pipeline


def prepare(platform: str) -> None:
    """Have a backend begin with what every program needs, while one is traced."""
    if not config.isolated and available():
        get_backend(platform).prepare()


Gather = Callable[..., tuple[list[Any], tuple[Any, ...]] | None]
_gatherers: dict[type, Gather] = {}


def gatherer(kind: type) -> Gather:
    """What gathers arrays of a class out of containers quicker than Python, for programs that have
    a launcher: their leaves and what calls like this one are found by. `None` where anything else
    is in there.
    """
    known = _gatherers.get(kind)
    if known is not None:
        return known
    from shardir.backends.cpu.native.runtime import calls, gathering

    made = gathering.gatherer(calls.launches()["gather"], kind) or (lambda *_: None)
    _gatherers[kind] = made
    return made


def wait_quickly(thing: object, kind: type) -> bool:
    """Have machine code give back what `thing`, of a `quick_class`, is called with, where all in
    there are containers of arrays of a class that hold their numbers here.

    Returns whether it does; not where there is no machine code yet.
    """
    if not available():
        return False
    from shardir.backends.cpu.native.runtime import calls, readiness

    return calls.answers_calls() and readiness.wait(calls.calls()["wait"], kind, thing)


def executable(module: Module, devices: Sequence[Device]) -> Executable | WholeExecutable:
    """A partitioned module, ready to run on `devices`, which may be of several processes."""
    there, backend = here(), devices[0].backend
    if backend != "cpu":
        chosen = get_backend(backend)
        return chosen.compile(Pipeline.parse(chosen.pipeline)(module))
    owners = tuple(device.process_index for device in devices)
    if there.link is None or all(owner == there.index for owner in owners):
        return _alone(module, backend)
    native = available() and not config.isolated
    return there.link.compile(
        module,
        owners,
        (lambda passes: Pipeline.parse(passes)(module)) if native else None,
        checks_inputs=config.check_replicated_inputs,
    )


def _alone(module: Module, platform: str) -> Executable | WholeExecutable:
    """The program for this process: device by device where there is no other way."""
    if config.isolated:
        return get_backend("isolated").compile(module)
    if available():
        backend: Backend = get_backend(platform)
        try:
            return backend.bring(module, lambda: Pipeline.parse(backend.pipeline)(module))
        except MergeError:
            pass
    return get_backend("numpy").compile(module)


def added_pipeline(devices: Sequence[Device]) -> str:
    """The passes that the backend of this process adds to those of every program, as text."""
    return get_backend(devices[0].backend).pipeline
