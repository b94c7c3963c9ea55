"""Machine descriptions: limits of the instruction set, and cache keys."""

import os
import platform
import subprocess
import sys
from dataclasses import fields, replace
from typing import Any

import pytest

from shardir.backends.cpu.backend import NativeBackend
from shardir.backends.cpu.codegen import target
from shardir.backends.cpu.codegen.cache_keys import cache_key
from shardir.backends.cpu.codegen.target import ISAS, HostDescription, host_machine
from shardir.backends.cpu.codegen.tile_permission import request_tile_registers
from shardir.backends.cpu.errors import SettingError
from tests.backends.cpu.machine_descriptions import (
    HASWELL,
    MACHINES,
    NEOVERSE,
    SAPPHIRE_RAPIDS,
    SSE_ONLY,
    ZEN_5,
)


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize(("isa", "width"), [("sse", 16), ("avx2", 32), ("avx512", 64), ("amx", 64)])
def test_a_limited_machine_has_only_the_permitted_instructions(
    machine: HostDescription, isa: str, width: int
) -> None:
    limited = machine.limited_to(isa)
    assert limited.vector_bytes == min(machine.vector_bytes, width)
    assert not (width < 64 and limited.has("avx512f"))
    assert not (width < 32 and any(map(limited.has, ("avx", "avx2", "f16c", "fma"))))
    assert not (isa != "amx" and any(map(limited.has, ("amx-tile", "amx-bf16", "amx-int8"))))
    assert (limited.l1_bytes, limited.l2_bytes) == (machine.l1_bytes, machine.l2_bytes)
    assert limited == machine or limited.has("sse2")


def test_x86_limits_do_not_change_arm_machines() -> None:
    assert NEOVERSE.limited_to("sse") == NEOVERSE


def test_avx512_and_arm_have_many_registers() -> None:
    assert ZEN_5.has_many_registers
    assert NEOVERSE.has_many_registers
    assert not HASWELL.has_many_registers
    assert not SSE_ONLY.has_many_registers


def test_keys_depend_on_every_field_of_a_machine() -> None:
    """Machines that share a cache folder must use only code of their own description."""
    machine = host_machine()
    for field in fields(HostDescription):
        value = getattr(machine, field.name)
        other: Any = f"{value}+" if isinstance(value, str) else 7 + value
        assert replace(machine, **{field.name: other}).words() != machine.words()


def test_keys_differ_between_machines() -> None:
    keys = {cache_key(machine, "module", "name") for machine in MACHINES.values()}
    assert len(keys) == len(MACHINES)


def test_the_environment_limits_the_instruction_set() -> None:
    script = (
        "from shardir.backends.cpu.codegen.target import host_machine\n"
        "print(host_machine().vector_bytes, host_machine().has('avx2'))"
    )
    for isa, expected_output in (("sse", "16 False"), ("mmx", "")):
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"SHARDIR_MAX_CPU_ISA": isa},
            capture_output=True,
            text=True,
        )
        assert done.stdout.strip() == expected_output
        if not expected_output:
            assert done.stderr.endswith(
                "SettingError: SHARDIR_MAX_CPU_ISA is 'mmx', which is not an instruction set; "
                "set it to one of sse, avx2, avx512, amx, or unset it to use all instructions of "
                "the processor\n"
            )


def test_backends_refuse_machines_whose_programs_this_host_may_not_run() -> None:
    host = host_machine()
    refused: list[tuple[Any, str]] = [
        (
            "host",
            "the machine of a native backend is a HostDescription, got 'host'; leave it out to "
            "compile for this host",
        ),
        (
            replace(host, triple="riscv64-unknown-linux-gnu"),
            f"this host runs programs for {host.triple}, not for riscv64-unknown-linux-gnu; derive "
            "the machine from host_machine()",
        ),
        (
            replace(host, cpu="znver9"),
            f"this host, {host.cpu!r}, may lack instructions of 'znver9'; set the cpu of the "
            "machine to 'x86-64' and list its features",
        ),
        (
            replace(host, features=f"{host.features},-a,+b,+c"),
            f"this host, {host.cpu!r}, lacks the features b, c of the machine; remove them, or "
            "derive the machine from host_machine()",
        ),
    ]
    for machine, expected in refused:
        with pytest.raises((SettingError, TypeError)) as caught:
            NativeBackend(machine)
        assert str(caught.value) == expected
    for isa in ISAS:
        NativeBackend(host.limited_to(isa))


def test_a_process_without_tile_registers_has_no_amx(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = []

    def refuse() -> bool:
        requests.append(1)
        return False

    monkeypatch.setattr(target, "request_tile_registers", refuse)
    monkeypatch.setattr(target, "_detect_host", lambda: SAPPHIRE_RAPIDS)
    for limit, count in (("", 1), ("amx", 2), ("avx512", 2), ("sse", 2)):
        monkeypatch.setenv("SHARDIR_MAX_CPU_ISA", limit)
        machine = host_machine.__wrapped__()
        assert not machine.has("amx-tile")
        assert machine == SAPPHIRE_RAPIDS.limited_to(limit if limit == "sse" else "avx512")
        assert len(requests) == count


def test_a_process_with_tile_registers_has_amx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHARDIR_MAX_CPU_ISA", raising=False)
    monkeypatch.setattr(target, "request_tile_registers", lambda: True)
    monkeypatch.setattr(target, "_detect_host", lambda: SAPPHIRE_RAPIDS)
    assert host_machine.__wrapped__() == SAPPHIRE_RAPIDS


@pytest.mark.parametrize(("system", "machine"), [("darwin", "x86_64"), ("linux", "aarch64")])
def test_other_systems_do_not_grant_tile_registers(
    monkeypatch: pytest.MonkeyPatch, system: str, machine: str
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert not request_tile_registers()
