"""Simulation of a lowered program on a machine, which is given as a description or by name."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path

from shardir.backends.base import UnknownBackendError, get_backend
from shardir.backends.emission import get_target
from shardir.display.byte_sizes import parse_bytes
from shardir.errors import MachineError
from shardir.frontend.errors import ArgumentError
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.ir.location import SourceLocations
from shardir.ir.module import Module
from shardir.machine import Machine, load_machine
from shardir.machine.description_files import read_description
from shardir.passes.simulation import MachineModel, Simulation, simulate
from shardir.passes.simulation.host_calls import CallCosts
from shardir.passes.simulation.simulate import FUSION_PIPELINE

MachineLike = MachineModel | str | PathLike[str]


def simulate_step(
    module: Module,
    machine: MachineLike,
    *,
    traced: Module | None = None,
    links: Mapping[str, str] | None = None,
    target: str | None = None,
    memory: int | str | None = None,
    donated: Sequence[int] = (),
    places: SourceLocations | None = None,
    calls: CallCosts | None = None,
    offloaded: Mapping[int, int] | None = None,
) -> Simulation:
    """Return the simulation of a partitioned module; see `Compiled.simulate`."""
    axes = {name: size for mesh in module.meshes for name, size in mesh.axes}
    found = resolve_machine(machine, axes, links, "simulate")
    return simulate(
        module,
        found,
        traced=traced,
        fusion=FUSION_PIPELINE if target is None else get_target(target).pipeline,
        merging=_merging_passes(found) if target is None else None,
        donated=donated,
        memory_bytes=None if memory is None else parse_bytes(memory),
        places=places,
        calls=calls,
        offloaded=offloaded,
    )


def _merging_passes(machine: MachineModel) -> str | None:
    """Return the passes with which the backend of a machine makes one program for all devices,
    `None` if its description names no backend."""
    if not isinstance(machine, Machine) or machine.description.backend is None:
        return None
    try:
        return get_backend(machine.description.backend.name).pipeline
    except UnknownBackendError as error:
        raise MachineError(f"{machine.description.path}: backend.name: {error}") from None


def check_machine(machine: MachineLike, word: str) -> None:
    """Raise an error if `machine`, an argument of the public function `word`, is no machine, or if
    its description cannot be read."""
    if isinstance(machine, (str, PathLike)):
        read_description(machine if isinstance(machine, str) else Path(machine))
    elif not hasattr(machine, "collective_seconds"):
        raise ArgumentError(
            with_location(
                f"the machine of {word} is a name, a path, or a result of "
                f"shardir.machine.load_machine, not {brief(machine)}"
            )
        )


def resolve_machine(
    machine: MachineLike, axes: Mapping[str, int], links: Mapping[str, str] | None, word: str
) -> MachineModel:
    """Return the machine of a call of the public function `word`, for a mesh with `axes`."""
    if isinstance(machine, (str, PathLike)):
        found: MachineModel = load_machine(
            machine if isinstance(machine, str) else Path(machine), axes=axes, links=links
        )
    else:
        check_machine(machine, word)
        if links is not None:
            raise ArgumentError(
                with_location(f"links of {word} are for a machine given by its name or path")
            )
        found = machine
    if isinstance(found, Machine) and (wrong := _differing_axis(found, axes)) is not None:
        raise MachineError(
            f"machine {found.name!r} was loaded for the axes {dict(found.axes)}, and the program's "
            f"mesh has {wrong}={axes[wrong]}; load it with axes={axes}"
        )
    return found


def _differing_axis(machine: Machine, axes: Mapping[str, int]) -> str | None:
    """Return an axis of a mesh that a machine was loaded without or with another size. An axis with
    one position needs no link."""
    return next((axis for axis, size in axes.items() if machine.axes.get(axis, 1) != size), None)
