"""Compilation of partitioned modules with the backend of this process, or of several processes."""

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
    """Start the initialization of a backend while the first program is traced."""
    if not config.isolated and available():
        get_backend(platform).prepare()


Gather = Callable[..., tuple[list[Any], tuple[Any, ...]] | None]
_gatherers: dict[type, Gather] = {}


def gatherer(kind: type) -> Gather:
    """Return a native function that flattens pytrees of arrays of the class `kind`.

    It returns the leaves and the cache key of a call, or `None` if any other object is in the
    pytree. Use it only for programs with a native launch.
    """
    known = _gatherers.get(kind)
    if known is not None:
        return known
    from shardir.backends.cpu.native.runtime import calls, gathering

    made = gathering.gatherer(calls.launches()["gather"], kind) or (lambda *_: None)
    _gatherers[kind] = made
    return made


def wait_quickly(callable_object: object, kind: type) -> bool:
    """Install a native implementation of `callable_object`, of a vectorcall class, that waits for
    arrays.

    It returns its argument if that is a pytree of arrays of the class `kind` with elements in host
    memory. Return whether it was installed; it is not where native code is unavailable or not
    compiled yet.
    """
    if not available():
        return False
    from shardir.backends.cpu.native.runtime import calls, readiness

    return calls.answers_calls() and readiness.wait(calls.calls()["wait"], kind, callable_object)


def executable(module: Module, devices: Sequence[Device]) -> Executable | WholeExecutable:
    """Return a partitioned module compiled for `devices`, which may belong to several processes."""
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
    """Return the program of this process; the NumPy backend runs it if no other backend can."""
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
    """Return the passes that the backend of `devices` adds to the pipeline, as text."""
    return get_backend(devices[0].backend).pipeline
