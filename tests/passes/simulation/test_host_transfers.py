"""State in the memory of the host: transfers of a simulated program."""

from dataclasses import dataclass

import pytest

from shardir.errors import MachineError
from shardir.ir.module import Module
from shardir.passes.simulation import simulate
from shardir.passes.simulation.host_transfers import BUFFER_COUNT
from shardir.text.parser import parse
from tests.passes.simulation.round_machine import MACHINE, RoundMachine

COUNT = 8
"""The number of states."""
BYTES = 256
"""The bytes of one state, and of one gradient."""


def program() -> Module:
    """Return a step that adds a gradient to each of some states."""
    numbers = range(COUNT)
    params = ", ".join(f"%{name}{i}: f32[64]" for name in "mg" for i in numbers)
    results = ", ".join(["f32[64]"] * COUNT)
    lines = "".join(f"  %n{i} = add(%m{i}, %g{i}) : f32[64]\n" for i in numbers)
    returns = ", ".join(f"%n{i}" for i in numbers)
    return parse(f"func @step({params}) -> ({results}) {{\n{lines}  return {returns}\n}}\n")


@dataclass(frozen=True)
class MachineWithHost(RoundMachine):
    """The transfer of a byte between device and host takes `host_nanoseconds`."""

    host_nanoseconds: int = 1

    def host_seconds(self, nbytes: float) -> float:
        return nbytes * self.host_nanoseconds * 1e-9


STATES = {i: i for i in range(COUNT)}


def test_the_device_holds_few_states_at_a_time() -> None:
    kept = simulate(program(), MACHINE)
    assert kept.memory.peak == 3 * COUNT * BYTES
    moved = simulate(program(), MachineWithHost(), offloaded=STATES)
    # The gradients, the states of some additions and their next values, and flags.
    assert moved.memory.peak < COUNT * BYTES + 2 * (BUFFER_COUNT + 1) * BYTES
    assert moved.memory.peak > COUNT * BYTES + 2 * BYTES


def test_transfers_in_both_directions_overlap_with_computation() -> None:
    # An addition reads two values and writes one: 3 ns for each byte of a state.
    computation = 3 * COUNT * BYTES
    fast = simulate(program(), MachineWithHost(), offloaded=STATES)
    assert fast.breakdown.duration == (computation + 2 * BYTES) * 1000
    hidden = (COUNT - 1) * BYTES * 1000
    assert fast.breakdown.hidden == {"host to device": hidden, "device to host": hidden}
    assert fast.breakdown.exposed_total == 2 * BYTES * 1000
    slow = simulate(program(), MachineWithHost(host_nanoseconds=10), offloaded=STATES)
    # The transfers to the device wait for those to the host that free the memory.
    assert slow.breakdown.duration > 10 * (COUNT + 1) * BYTES * 1000
    assert sum(slow.breakdown.compute.values()) == computation * 1000


def test_donated_arguments_are_found_after_those_in_the_memory_of_the_host() -> None:
    moved = simulate(program(), MachineWithHost(), offloaded={0: 0}, donated=range(COUNT))
    assert moved.memory.peak == (2 * COUNT + 1) * BYTES


def test_a_machine_without_transfers_to_the_host_is_refused() -> None:
    with pytest.raises(MachineError) as raised:
        simulate(program(), MACHINE, offloaded=STATES)
    assert str(raised.value) == (
        "machine 'round' has no method host_seconds, the time of a transfer between a device and "
        "its host"
    )
