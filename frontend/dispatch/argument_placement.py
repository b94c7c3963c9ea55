"""The devices on which a compiled function places the arguments of its calls."""

from collections.abc import Sequence
from typing import Protocol, final

from shardir.frontend.arrays.device_transfer import device_put
from shardir.frontend.arrays.float0 import replace_float0
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.shardings.devices import Device
from shardir.frontend.tracing.parameters import Parameters


class Placement(Protocol):
    """The devices to which a function moves its arguments before it runs.

    `version` changes when a trace finds that other devices are needed.
    """

    @property
    def version(self) -> object: ...

    def place(
        self, args: tuple[PyTree, ...], options: dict[str, PyTree]
    ) -> tuple[Sequence[PyTree], dict[str, PyTree]]:
        """Return the arguments of a call on these devices."""
        ...


@final
class DevicePlacement:
    """The placement of all arguments on the `device` of `jit`."""

    version = None

    def __init__(self, parameters: Parameters, device: Device) -> None:
        self._parameters, self._device = parameters, device

    def place(
        self, args: tuple[PyTree, ...], options: dict[str, PyTree]
    ) -> tuple[Sequence[PyTree], dict[str, PyTree]]:
        known = self._parameters.for_call(len(args))
        dynamic, _ = known.partition_arguments(args, options)
        # Arrays of float0 are on no device; `device_put` returns them in place of their nodes.
        placed = device_put(replace_float0(dynamic), self._device)
        return known.merge_arguments(replace_float0(placed), args, options)
