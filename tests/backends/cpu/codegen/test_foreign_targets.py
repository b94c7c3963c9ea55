"""The interpreter and the entry for systems and processors that are not here: they compile."""

from dataclasses import replace

import llvmlite.binding as binding
import pytest

from shardir.backends.cpu.codegen.emission import make_target_machine
from shardir.backends.cpu.codegen.llvm_text import LLVMModule
from shardir.backends.cpu.codegen.target import (
    MachineDescription,
    architecture,
    host_machine,
    system_name,
)
from shardir.backends.cpu.dispatch.control_interpreter import define_control_interpreter
from shardir.backends.cpu.dispatch.entry_point import define_entry_points
from shardir.backends.cpu.dispatch.python_api import PYTHON_FUNCTIONS, declare_python
from shardir.backends.cpu.threads.parking import libc_symbols, sleep_method
from shardir.backends.cpu.threads.phase_interpreter import define_interpreter


def elsewhere(triple: str) -> MachineDescription:
    """A machine of which nothing is known but its system and processor."""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    return replace(host_machine(), triple=triple, cpu="", features="")


@pytest.mark.parametrize(
    ("triple", "how", "pause"),
    [
        ("x86_64-unknown-linux-gnu", "futex", "pause"),
        ("aarch64-unknown-linux-gnu", "futex", "yield"),
        ("x86_64-apple-darwin", "condition", "pause"),
        ("arm64-apple-darwin23.0.0", "condition", "yield"),
    ],
)
def test_code_is_made_for_every_system(triple: str, how: str, pause: str) -> None:
    assert sleep_method(triple) == how
    module = LLVMModule()
    declare_python(module)
    define_interpreter(module, triple, how)
    define_entry_points(module)
    define_control_interpreter(module)
    parsed = binding.parse_assembly(module.text())
    parsed.triple = triple
    parsed.verify()
    lines = [
        line.split()
        for line in make_target_machine(elsewhere(triple)).emit_assembly(parsed).splitlines()
    ]
    assert [pause] in lines
    # What it needs from outside is what it is given.
    outside = {name for name in (*libc_symbols(how), *PYTHON_FUNCTIONS)}
    declared = {
        each.name
        for each in parsed.functions
        if each.is_declaration and not each.name.startswith("llvm.")
    }
    assert declared == outside


@pytest.mark.parametrize(
    ("triple", "table"),
    [
        ("aarch64-unknown-linux-gnu", ":got:outside"),
        ("arm64-apple-darwin23.0.0", "_outside@GOTPAGE"),
    ],
)
def test_arm_finds_what_is_far_away_through_a_table(triple: str, table: str) -> None:
    parsed = binding.parse_assembly(
        """
        declare void @outside()
        define ptr @address() {
          ret ptr @outside
        }
        """
    )
    parsed.triple = triple
    assert table in make_target_machine(elsewhere(triple)).emit_assembly(parsed)


def test_triples_are_told_apart() -> None:
    assert system_name("arm64-apple-macosx14.0") == "darwin"
    assert architecture("arm64-apple-macosx14.0") == "aarch64"
    assert system_name("aarch64-unknown-linux-gnu") == "linux"
    assert architecture("x86_64-pc-linux-gnu") == "x86_64"
