"""Processes that are alive, and the step at which a preempted job saves its state."""

import signal
import threading
from collections.abc import Sequence

from shardir.frontend.argument_checks import check_integer
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.call_signatures import with_constructor_errors
from shardir.frontend.distributed.multihost import gather_objects
from shardir.frontend.distributed.processes import process_group
from shardir.frontend.errors import ArgumentError, DistributedError
from shardir.frontend.shardings.devices import Device
from shardir.frontend.source_locations import with_location


@with_constructor_errors
class live_devices:
    """Run the body of a `with` statement in all processes of `devices`, or raise in all of them.

    The statement waits for all processes, and yields the devices in the order of their ids. Its
    end waits again: if the body raised an error in one process, the others raise
    `DistributedError`, which names the process. A job ends when one of its processes fails, so all
    devices of a running job are alive. Raise `ArgumentError` unless there are devices of all
    processes, and `DistributedError` before `shardir.distributed.initialize`.
    """

    def __init__(self, devices: Sequence[Device]) -> None:
        group = process_group()
        if group.link is None:
            raise DistributedError(
                with_location("live_devices needs several processes; call distributed.initialize()")
            )
        self._devices = list(devices)
        for device in self._devices:
            if not isinstance(device, Device):
                raise ArgumentError(with_location(f"live_devices takes devices, got {device!r}"))
        owners = {device.process_index for device in self._devices}
        absent = [i for i in range(group.count) if i not in owners]
        if absent:
            raise ArgumentError(
                with_location(
                    f"live_devices has no device of process {absent[0]}; pass devices of all "
                    "processes, which wait for each other"
                )
            )

    def __enter__(self) -> list[Device]:
        gather_objects(None, "live_devices")
        return sorted(self._devices, key=lambda device: device.id)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        raised = gather_objects(kind is not None, "the end of live_devices")
        if kind is None and any(raised):
            raise DistributedError(
                with_location(
                    f"the body of live_devices raised an error in process {raised.index(True)}, so "
                    "that its results are not complete in this process"
                )
            )


class _Preemption:
    """The state of SIGTERM in this process, whose handler it replaces."""

    def __init__(self) -> None:
        self.is_installed = False
        self.is_notified = False

    def install(self) -> None:
        """Replace the handler of SIGTERM, which would end the process."""
        if self.is_installed:
            return
        if threading.current_thread() is not threading.main_thread():
            raise DistributedError(
                with_location(
                    "the first call of reached_preemption_sync_point installs a handler of "
                    "SIGTERM; make it in the main thread"
                )
            )
        signal.signal(signal.SIGTERM, self._notify)
        self.is_installed = True

    def _notify(self, *_: object) -> None:
        self.is_notified = True


_preemption = _Preemption()


@with_argument_errors
def reached_preemption_sync_point(step_id: int) -> bool:
    """Return whether a process has received SIGTERM, and all processes save their state now.

    All processes call it in each step with the same `step_id`; it returns the same in all of them.
    The first call replaces the handler of SIGTERM, so that a cluster that sends the signal before
    it ends the processes gives them time to save. With one process it returns False, and leaves
    the handler. Each call gathers one object of each process. Raise `DistributedError` if the
    processes are in different steps.
    """
    step = check_integer("step_id of reached_preemption_sync_point", step_id)
    if process_group().link is None:
        return False
    _preemption.install()
    notices = gather_objects((step, _preemption.is_notified), "reached_preemption_sync_point")
    steps = [each for each, _ in notices]
    if len(set(steps)) > 1:
        raise DistributedError(
            with_location(
                f"reached_preemption_sync_point was called for the steps {steps} of the processes; "
                "call it in every step of each process"
            )
        )
    return any(is_notified for _, is_notified in notices)
