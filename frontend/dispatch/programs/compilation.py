"""Compilation of partitioned modules with the backend of this process, or of several processes."""

from collections.abc import Sequence

from shardir.backends.base import Backend, Executable, UnshardedExecutable, get_backend
from shardir.backends.cpu import is_available
from shardir.backends.device_shards import get_device_backend
from shardir.errors import MergeError
from shardir.frontend.config import config
from shardir.frontend.distributed.processes import process_group
from shardir.frontend.shardings.devices import Device
from shardir.ir.module import Module
from shardir.passes.pipeline import Pipeline


def prepare_backend(platform: str) -> None:
    """Start the initialization of a backend while the first program is traced."""
    if not config.isolated and is_available():
        get_backend(platform).prepare()


def compile_module(module: Module, devices: Sequence[Device]) -> Executable | UnshardedExecutable:
    """Return a partitioned module compiled for `devices`, which may belong to several processes."""
    there, backend = process_group(), devices[0].backend
    if backend != "cpu":
        chosen = get_device_backend(backend)
        ids = [device.id for device in devices]
        results = [value.type for value in module.main.body.returns]
        return chosen.compile_for(Pipeline.parse(chosen.pipeline)(module), ids, results)
    owners = tuple(device.process_index for device in devices)
    if there.link is None or all(owner == there.index for owner in owners):
        return _compile_for_process(module, backend)
    native = is_available() and not config.isolated
    return there.link.compile(
        module,
        owners,
        (lambda passes: Pipeline.parse(passes)(module)) if native else None,
        checks_inputs=config.check_replicated_inputs,
    )


def _compile_for_process(module: Module, platform: str) -> Executable | UnshardedExecutable:
    """Return the program of this process; the NumPy backend runs it if no other backend can."""
    if config.isolated:
        return get_backend("isolated").compile(module)
    if is_available():
        backend: Backend = get_backend(platform)
        try:
            return backend.load_or_compile(module, lambda: Pipeline.parse(backend.pipeline)(module))
        except MergeError:
            pass
    return get_backend("numpy").compile(module)


def backend_pipeline(devices: Sequence[Device]) -> str:
    """Return the passes that the backend of `devices` adds to the pipeline, as text."""
    return get_backend(devices[0].backend).pipeline
