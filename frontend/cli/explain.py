"""`shardir explain` explains the shardings and the collectives of a program."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shardir.frontend.cli.files import CommandError, read_hlo
from shardir.frontend.cli.options import (
    Arguments,
    FileOrFunction,
    MeshSizes,
    ReportFormat,
    RuleTexts,
    Specs,
    parse_rules,
)
from shardir.frontend.cli.targets import is_function_name, load_target, parse_mesh
from shardir.op_rules.custom_rules import rules
from shardir.passes import Pipeline, Propagate
from shardir.passes.pipeline import DEFAULT_PIPELINE

if TYPE_CHECKING:
    from shardir.hlo.module import HloModule

EXAMPLES = """Examples:

  shardir explain mlp.ir

  shardir explain mlp.ir --value %h

  shardir explain mlp.ir --conflicts

  shardir explain mlp.ir --what-if "%w1: f32[128, 256@model]" --without %x

  shardir explain mlp.ir --order

  shardir explain mlp.ir --coverage

  shardir explain mymodule:train_step --mesh data=16,model=16

  shardir explain mymodule:train_step --mesh data=16,model=16 --html step.html

  shardir explain model.mlir --html model.html

  shardir explain module_0012.jit_step.cpu_after_optimizations.txt

  shardir explain after_optimizations.txt --program step.mlir"""


def explain(
    file: FileOrFunction,
    mesh: MeshSizes = None,
    args: Arguments = None,
    specs: Specs = None,
    value: Annotated[
        list[str] | None,
        typer.Option(help="origin of each mesh axis of a value, and why others are absent"),
    ] = None,
    conflicts: Annotated[
        bool, typer.Option("--conflicts", help="conflicting shardings, and their resolution")
    ] = False,
    what_if: Annotated[
        list[str] | None,
        typer.Option(help="changes with an annotation such as %w: f32[128, 256@model]"),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(help="changes without the annotation of %w, or of `result 0`"),
    ] = None,
    order: Annotated[
        bool, typer.Option("--order", help="values that depend on the propagation order")
    ] = False,
    coverage: Annotated[
        bool,
        typer.Option("--coverage", help="operations without rules, annotations without effect"),
    ] = False,
    communication: Annotated[
        bool, typer.Option("--communication", help="tables of collectives by kind, axes, line")
    ] = False,
    collective: Annotated[
        list[str] | None,
        typer.Option(help="cause of the collective that makes this value"),
    ] = None,
    function: Annotated[
        str | None, typer.Option(help="function of the values (default: the first)")
    ] = None,
    passes: Annotated[
        str, typer.Option(help="the propagation pass, such as propagate{level=basic}")
    ] = "propagate",
    rule: RuleTexts = None,
    program: Annotated[
        str | None,
        typer.Option(help="the program that XLA received, to compare XLA's collectives with ours"),
    ] = None,
    html: Annotated[
        str | None, typer.Option(help="write a page with all stages and explanations to this file")
    ] = None,
    to: Annotated[
        ReportFormat | None, typer.Option(help="print all numbers of that page in this form")
    ] = None,
) -> None:
    """Explain the shardings of a program, and the effect of other annotations."""
    # Imported late for start-up time.
    from shardir.frontend.cli import program_reports
    from shardir.passes import explain as explaining

    with rules(parse_rules(rule or ())):
        if (hlo := read_hlo(file)) is not None:
            typer.echo(str(_explain_xla(hlo, program, mesh, args, specs)))
            return
        if program is not None:
            raise CommandError(
                f"--program compares XLA's collectives, and {file!r} is no HLO text; pass the file "
                "*.after_optimizations.txt of --xla_dump_to"
            )
        target = load_target(file, mesh, args, specs)
        module = target.module
        steps = Pipeline.parse(passes).passes
        if len(steps) != 1 or not isinstance(steps[0], Propagate):
            raise CommandError(
                f"only propagation is explained, not {passes!r}; write propagate{{...}}"
            )
        found: dict[str, Any] = {"propagate": steps[0], "places": target.locations}
        reports: list[object] = [
            explaining.explain(module, each, function=function, **found) for each in value or ()
        ]
        if conflicts:
            reports.append(explaining.conflicts(module, **found))
        if what_if or without:
            reports.append(
                explaining.what_if(
                    module,
                    what_if or (),
                    without=without or (),
                    function=function,
                    propagate=steps[0],
                )
            )
        _, *rest = Pipeline.parse(DEFAULT_PIPELINE).passes
        whole = str(Pipeline((replace(steps[0], leave_open=True), *rest)))
        if html is not None or to is not None:
            program_reports.write_reports(target, whole, html, to)
            if not reports and not (communication or collective or order or coverage):
                return
        if communication:
            parted = Pipeline.parse(whole)(module)
            reports.append(explaining.communication(parted, places=found["places"]))
        reports += [
            explaining.explain_collective(module, each, pipeline=whole, **found)
            for each in collective or ()
        ]
        if order:
            reports.append(explaining.order_sensitive(module, **found))
        if coverage:
            reports.append(explaining.coverage(module, **found))
        if not reports:
            reports.append(explaining.summarize(module, **found))
            if target.lowered is not None:
                parted = Pipeline.parse(whole)(module)
                reports.append(explaining.communication(parted, places=found["places"]))
        typer.echo("\n\n".join(map(str, reports)))


def _explain_xla(
    hlo: "HloModule", program: str | None, mesh: str | None, args: str | None, specs: str | None
) -> object:
    """Return the report about XLA's collectives, beside our plan if the program is known."""
    from shardir.passes import explain as explaining  # For start-up time.

    if program is None:
        sizes = None if mesh is None else dict(parse_mesh(mesh).shape)
        return explaining.xla_communication(hlo, sizes)
    is_function = is_function_name(program)
    target = load_target(program, mesh if is_function else None, args, specs)
    return explaining.compare_with_xla(hlo, target.module, places=target.locations)
