"""Live devices and preemption in a single process; tests/backends/distributed starts several."""

import signal

import shardir as sd
from shardir.experimental import multihost_utils
from shardir.frontend.errors import DistributedError
from tests.error_assertions import assert_raises_exactly


def test_a_single_process_is_not_preempted_and_keeps_its_handler() -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert not multihost_utils.reached_preemption_sync_point(1)
    assert signal.getsignal(signal.SIGTERM) is before


def test_live_devices_need_several_processes() -> None:
    assert_raises_exactly(
        lambda: multihost_utils.live_devices(sd.devices()),
        DistributedError,
        "live_devices needs several processes; call distributed.initialize()",
    )
