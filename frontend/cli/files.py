"""Input files of the commands: modules in IR text or StableHLO."""

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from shardir._imports.lazy_import import lazy_import
from shardir.errors import bound_message, os_error_reason
from shardir.frontend.cli.options import CommandError, ModuleFormat
from shardir.hlo.module import HloModule
from shardir.hlo.parser import is_hlo, parse_hlo
from shardir.ir.module import Module
from shardir.ops.opaque import unknown_operations
from shardir.stablehlo.bytecode import BYTECODE_SIGNATURE, bytecode_to_text
from shardir.stablehlo.debug_attributes import DescribedModule
from shardir.text.definition_locations import DefinitionLocations, find_definition_locations
from shardir.text.parser import parse
from shardir.verify.verifier import verify

if TYPE_CHECKING:
    from shardir.stablehlo import reader
else:
    reader = lazy_import("shardir.stablehlo.reader")

STDIN = "<stdin>"
"""The name of standard input in errors."""


def read_module(file: str) -> Module:
    """Return the only module of a file."""
    return parse_single_module(*read_text(file))


def read_text(file: str) -> tuple[str, str]:
    """Return the text of a file and its name for errors."""
    name = STDIN if file == "-" else file
    if file.endswith(".py"):
        raise CommandError(
            f"{file!r} is a Python file; name a function of it, such as {Path(file).stem}:function"
        )
    try:
        if file != "-":
            data = Path(file).read_bytes()
            if not data.startswith(BYTECODE_SIGNATURE):
                return _unify_line_ends(data.decode("utf-8")), file
        else:
            if sys.stdin is None:
                raise CommandError("cannot read '<stdin>': it is closed")
            binary = getattr(sys.stdin, "buffer", None)
            text = sys.stdin.read() if binary is None else binary.read().decode("utf-8")
            return _unify_line_ends(text), name
    except (OSError, ValueError) as error:  # A path with a NUL byte raises ValueError.
        reason = os_error_reason(error)
        raise CommandError(f"cannot read {name!r}: {reason}") from None
    return bytecode_to_text(data, file), file


def _unify_line_ends(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_hlo(file: str) -> HloModule | None:
    """Return the module of a file of HLO text; `None` for another file or a function."""
    if not os.path.isfile(file):
        return None
    if file.endswith((".pb", ".pbtxt")):
        raise CommandError(
            f"{file!r} is a protocol buffer; this command reads HLO text: add "
            "--xla_dump_hlo_as_text to XLA_FLAGS and compile again, or write compiled.as_text() "
            "of JAX to a file"
        )
    text, name = read_text(file)
    return parse_hlo(text, name) if is_hlo(text) else None


def parse_single_module(text: str, name: str) -> Module:
    """Return the only module of a text."""
    modules = parse_modules(text, name, None)
    if len(modules) > 1:
        raise CommandError(
            f"{name} has {len(modules)} modules, one after each // -----; only opt takes several"
        )
    return modules[0]


_MLIR = re.compile(r"(?:\s|//[^\n]*\n)*(?:module\b|sdy\.|func\.func|#|!|\"builtin)")
_IR = re.compile(r"(?:\s|//[^\n]*\n)*(?:mesh|(?:spmd\s+)?func)\s*@")


def _is_stablehlo(text: str, name: str) -> bool:
    """Return whether a text is StableHLO: by its beginning, or by the file name where the beginning
    is neither that of a module nor that of IR text."""
    if _MLIR.match(text) is not None:
        return True
    return _IR.match(text) is None and name.endswith((".mlir", ".mlirbc"))


def definition_locations(text: str, name: str) -> DefinitionLocations | None:
    """Return the locations of value definitions in IR text, or `None` for StableHLO."""
    return None if _is_stablehlo(text, name) else find_definition_locations(text, name)


def parse_modules(text: str, name: str, form: ModuleFormat | None) -> list[Module]:
    """Return the modules of a text; warn on stderr about operations that are not supported."""
    return [each.module for each in parse_described_modules(text, name, form)]


def parse_described_modules(
    text: str, name: str, form: ModuleFormat | None
) -> list[DescribedModule]:
    """Return the modules of a text with their propagation edges, as `parse_modules` does."""
    if form is ModuleFormat.ir or (form is None and not _is_stablehlo(text, name)):
        described = [DescribedModule(parse(text, name))]
    else:
        described = [reader.read_described(part, name) for part in reader.split_modules(text)]
        for line in _unknown_operation_warnings([each.module for each in described]):
            typer.echo(line, err=True)
    for each in described:
        verify(each.module)
    if not described or not all(each.module.functions for each in described):
        raise CommandError(f"{name} contains a program without a function; add one, as func @f")
    return described


def _unknown_operation_warnings(modules: list[Module]) -> list[str]:
    """Return one warning for each kind of unknown operation."""
    found: dict[tuple[str, str], list[str]] = {}
    for module in modules:
        for unknown in unknown_operations(module):
            places = found.setdefault((unknown.operation, unknown.reason), [])
            places.append(str(unknown.loc or "somewhere"))
    return [
        bound_message(
            f"warning: {operation} is not supported ({_format_locations(places)})"
            f"{f': {reason}' if reason else ''}; passes keep it unchanged, and it cannot run"
        )
        for (operation, reason), places in found.items()
    ]


def _format_locations(places: list[str]) -> str:
    """Return up to three locations, and the number of the remaining ones."""
    named = list(dict.fromkeys(places))
    more = f" and {len(named) - 3} more" if len(named) > 3 else ""
    return ", ".join(named[:3]) + more
