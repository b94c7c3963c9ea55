"""Descriptions of machines: what a limit of instructions takes away, and what keys hold."""

import os
import subprocess
import sys
from dataclasses import fields, replace
from typing import Any

import pytest

from shardir.backends.cpu.codegen import cache_keys
from shardir.backends.cpu.codegen.cache_keys import cache_key
from shardir.backends.cpu.codegen.target import MachineDescription, host_machine
from tests.backends.cpu.machine_descriptions import HASWELL, MACHINES, NEOVERSE, SSE_ONLY, ZEN_5


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize(("isa", "width"), [("sse", 16), ("avx2", 32), ("avx512", 64)])
def test_a_machine_has_no_more_than_the_instruction_set_it_is_limited_to(
    machine: MachineDescription, isa: str, width: int
) -> None:
    found = machine.limited_to(isa)
    assert found.vector_bytes == min(machine.vector_bytes, width)
    assert not (width < 64 and found.has("avx512f"))
    assert not (width < 32 and any(map(found.has, ("avx", "avx2", "f16c", "fma"))))
    assert (found.l1_bytes, found.l2_bytes) == (machine.l1_bytes, machine.l2_bytes)
    assert found == machine or found.has("sse2")


def test_arm_has_no_instruction_set_of_x86_to_be_limited_to() -> None:
    assert NEOVERSE.limited_to("sse") == NEOVERSE


def test_many_registers_are_those_of_avx512_and_of_arm() -> None:
    assert ZEN_5.has_many_registers
    assert NEOVERSE.has_many_registers
    assert not HASWELL.has_many_registers
    assert not SSE_ONLY.has_many_registers


def test_keys_tell_all_of_a_machine() -> None:
    """Code in a folder that machines share is found by those of one description alone."""
    machine = host_machine()
    for field in fields(MachineDescription):
        value = getattr(machine, field.name)
        other: Any = f"{value}+" if isinstance(value, str) else 7 + value
        assert replace(machine, **{field.name: other}).words() != machine.words()


def test_keys_differ_between_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {cache_key("module", "name")}
    for machine in MACHINES.values():
        monkeypatch.setattr(cache_keys, "host_machine", lambda machine=machine: machine)
        keys.add(cache_key("module", "name"))
    assert len(keys) >= len(MACHINES)


def test_the_environment_limits_the_instructions() -> None:
    script = (
        "from shardir.backends.cpu.codegen.target import host_machine\n"
        "print(host_machine().vector_bytes, host_machine().has('avx2'))"
    )
    for isa, printed in (("sse", "16 False"), ("mmx", "")):
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"SHARDIR_MAX_CPU_ISA": isa},
            capture_output=True,
            text=True,
        )
        assert done.stdout.strip() == printed
        if not printed:
            assert done.stderr.endswith(
                "SettingError: SHARDIR_MAX_CPU_ISA is 'mmx', which is not an instruction set; "
                "set it to one of sse, avx2, avx512, or unset it to use all instructions of the "
                "processor\n"
            )
