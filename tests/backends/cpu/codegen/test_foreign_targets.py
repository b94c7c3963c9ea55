"""The phase interpreter and the entry points compile for other systems and processors."""

from dataclasses import replace

import llvmlite.binding as binding
import pytest

from shardir.backends.cpu.codegen.emission import make_target_machine
from shardir.backends.cpu.codegen.llvm_text import LLVMModule
from shardir.backends.cpu.codegen.target import (
    HostDescription,
    architecture,
    host_machine,
    system_name,
)
from shardir.backends.cpu.dispatch.control_interpreter import define_control_interpreter
from shardir.backends.cpu.dispatch.entry_point import define_entry_points
from shardir.backends.cpu.dispatch.python_api import PYTHON_FUNCTIONS, declare_python
from shardir.backends.cpu.threads.parking import libc_symbols, sleep_method
from shardir.backends.cpu.threads.phase_interpreter import define_interpreter


def foreign_machine(triple: str) -> HostDescription:
    """Return a machine description with only a system and a processor architecture."""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    return replace(host_machine(), triple=triple, cpu="", features="")


@pytest.mark.parametrize(
    ("triple", "sleep", "pause"),
    [
        ("x86_64-unknown-linux-gnu", "futex", "pause"),
        ("aarch64-unknown-linux-gnu", "futex", "yield"),
        ("x86_64-apple-darwin", "condition", "pause"),
        ("arm64-apple-darwin23.0.0", "condition", "yield"),
    ],
)
def test_runtime_code_compiles_for_every_system(triple: str, sleep: str, pause: str) -> None:
    assert sleep_method(triple) == sleep
    machine = foreign_machine(triple)
    module = LLVMModule(machine)
    declare_python(module)
    define_interpreter(module, triple, sleep)
    define_entry_points(module)
    define_control_interpreter(module)
    parsed = binding.parse_assembly(module.text())
    parsed.triple = triple
    parsed.verify()
    lines = [
        line.split() for line in make_target_machine(machine).emit_assembly(parsed).splitlines()
    ]
    assert [pause] in lines
    # The code declares exactly the symbols that the runtime provides.
    provided = {name for name in (*libc_symbols(sleep), *PYTHON_FUNCTIONS)}
    declared = {
        each.name
        for each in parsed.functions
        if each.is_declaration and not each.name.startswith("llvm.")
    }
    assert declared == provided


@pytest.mark.parametrize(
    ("triple", "table"),
    [
        ("aarch64-unknown-linux-gnu", ":got:external_symbol"),
        ("arm64-apple-darwin23.0.0", "_external_symbol@GOTPAGE"),
    ],
)
def test_arm_code_addresses_external_symbols_through_the_got(triple: str, table: str) -> None:
    parsed = binding.parse_assembly(
        """
        declare void @external_symbol()
        define ptr @address() {
          ret ptr @external_symbol
        }
        """
    )
    parsed.triple = triple
    assert table in make_target_machine(foreign_machine(triple)).emit_assembly(parsed)


def test_triples_give_system_and_architecture() -> None:
    assert system_name("arm64-apple-macosx14.0") == "darwin"
    assert architecture("arm64-apple-macosx14.0") == "aarch64"
    assert system_name("aarch64-unknown-linux-gnu") == "linux"
    assert architecture("x86_64-pc-linux-gnu") == "x86_64"
