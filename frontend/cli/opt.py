"""`shardir opt` runs passes on IR text."""

from functools import partial
from pathlib import Path

import typer

from shardir.errors import VerifyError
from shardir.frontend.cli.files import parse_described_modules, read_text
from shardir.frontend.cli.options import (
    CommandError,
    ModuleFormat,
    parse_rules,
)
from shardir.frontend.cli.targets import (
    CommandTarget,
    check_file_options,
    is_function_name,
    load_target,
)
from shardir.op_rules.custom_rules import rules
from shardir.passes import Pipeline
from shardir.passes.dump import Dump
from shardir.passes.numerics_check import NumericsCheck
from shardir.passes.pipeline import PassObserver, combine_observers, find_fault
from shardir.passes.program_diff import ProgramDiff
from shardir.stablehlo.debug_attributes import DescribedModule
from shardir.stablehlo.printer import show as show_stablehlo
from shardir.text.printer import print_module


def run_passes(
    file: str,
    passes: str | None,
    verify_numbers: bool,
    dump_dir: Path | None,
    diff: list[str] | None,
    locations: bool,
    from_: ModuleFormat | None,
    to: ModuleFormat,
    rule: list[str] | None,
    mesh: str | None,
    args: str | None,
    specs: str | None,
) -> None:
    """Run passes on a module and print the result."""
    if is_function_name(file):
        if from_ is not None:
            raise CommandError(f"--from is for files, and {file!r} is a function")
        programs = [load_target(file, mesh, args, specs)]
        described = [DescribedModule(program.module) for program in programs]
    else:
        check_file_options(file, mesh, args, specs)
        described = parse_described_modules(*read_text(file), from_)
        programs = [CommandTarget(each.module, None) for each in described]
    printed = []
    for number, program in enumerate(programs):
        module, pipeline = program.module, Pipeline.parse(program.pipeline(passes))
        show = partial(
            show_stablehlo if to is ModuleFormat.stablehlo else print_module, locations=locations
        )
        diffs = [ProgramDiff(each, pipeline, module, show) for each in diff or ()]
        observers: list[PassObserver] = [*diffs]
        if dump_dir is not None:
            folder = dump_dir if len(programs) == 1 else dump_dir / str(number)
            observers.append(Dump(folder, module))
        if verify_numbers:
            observers.append(NumericsCheck())
        with rules(parse_rules(rule or ())):
            result = pipeline(module, combine_observers(*observers))
            if fault := find_fault(result):
                pipeline.verify_results(module)
                raise VerifyError(fault)
        if to is ModuleFormat.stablehlo:
            show = partial(show, debug=described[number].attributes_of(result))
        printed.append("\n".join(each.text() for each in diffs) if diffs else show(result))
    typer.echo("\n// -----\n\n".join(printed), nl=False)
