"""`shardir explain` explains the shardings and the collectives of a program."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from shardir.display.axis_colors import terminal_text
from shardir.frontend.cli import program_reports
from shardir.frontend.cli.files import read_hlo, read_text
from shardir.frontend.cli.options import CommandError, ReportFormat, parse_rules
from shardir.frontend.cli.targets import CommandTarget, load_target, parse_mesh
from shardir.hlo.dump_folder import find_dumped_modules, find_mesh_axes
from shardir.hlo.module import HloModule
from shardir.hlo.parser import parse_hlo
from shardir.ir.module import Module
from shardir.op_rules.custom_rules import rules
from shardir.passes import explain as explaining
from shardir.passes.explain.explained_pipeline import ExplainedPipeline
from shardir.passes.explain.propagation_history.propagation_edges import show_propagation_edges
from shardir.passes.pipeline import Pipeline
from shardir.passes.propagation.propagate import Propagate


def explain_program(
    file: str,
    mesh: str | None,
    args: str | None,
    specs: str | None,
    value: list[str] | None,
    conflicts: bool,
    what_if: list[str] | None,
    without: list[str] | None,
    order: bool,
    coverage: bool,
    communication: bool,
    memory: bool,
    collective: list[str] | None,
    function: str | None,
    passes: str | None,
    rule: list[str] | None,
    program: str | None,
    propagation_edges: bool,
    html: str | None,
    to: ReportFormat | None,
) -> None:
    """Print explanations of the shardings of a program."""
    with rules(parse_rules(rule or ())):
        is_folder = os.path.isdir(file)
        hlo = None if is_folder else read_hlo(file)
        if is_folder or hlo is not None:
            program_options: dict[str, object] = {
                "--value": value, "--conflicts": conflicts, "--what-if": what_if,
                "--without": without, "--order": order, "--coverage": coverage,
                "--communication": communication, "--memory": memory, "--collective": collective,
                "--function": function, "--html": html, "--to": to,
                "--propagation-edges": propagation_edges, "--passes": passes is not None,
            }  # fmt: skip
            _refuse_program_options(program_options, file, hlo)
            if hlo is None:
                typer.echo(_explain_dump_folder(file, program, mesh, args, specs))
            else:
                typer.echo(str(_explain_xla(hlo, program, mesh, args, specs)))
            return
        if program is not None:
            raise CommandError(
                f"--program compares XLA's collectives, and {file!r} is not HLO text; pass the "
                "file *.after_optimizations.txt of --xla_dump_to"
            )
        if function is not None and not (value or what_if or without):
            raise CommandError("--function applies to --value, --what-if and --without only")
        target = load_target(file, mesh, args, specs)
        module = target.module
        _note_missing_locations(target)
        whole = _explained_pipeline(target, passes)
        found: dict[str, Any] = {"pipeline": whole, "places": target.locations}
        reports: list[object] = [
            explaining.explain(module, each, function=function, **found) for each in value or ()
        ]
        if propagation_edges:
            propagate = ExplainedPipeline.divide(whole).propagate
            reports.append(show_propagation_edges(module, propagate).rstrip())
        if conflicts:
            reports.append(explaining.conflicts(module, **found))
        if what_if or without:
            reports.append(
                explaining.what_if(
                    module, what_if or (), without=without or (), function=function, **found
                )
            )
        if html is not None or to is not None:
            program_reports.write_reports(target, whole, html, to)
            if not reports and not (communication or memory or collective or order or coverage):
                return
        reports += _explain_device_program(target, whole, communication, memory)
        reports += [
            explaining.explain_collective(module, each, **found) for each in collective or ()
        ]
        if order:
            reports.append(explaining.order_sensitive(module, **found))
        if coverage:
            reports.append(explaining.coverage(module, **found))
        if not reports:
            reports = _summarize(target, whole, found)
        _echo_report("\n\n".join(map(str, reports)), module)


def _explain_device_program(
    target: CommandTarget, pipeline: str, communication: bool, memory: bool
) -> list[object]:
    """Return the requested reports about the program of each device."""
    if not (communication or memory):
        return []
    parted = Pipeline.parse(pipeline)(target.module)
    reports: list[object] = []
    if communication:
        reports.append(explaining.communication(parted, places=target.locations))
    if memory:
        reports.append(explaining.peak_memory(parted, places=target.locations))
    return reports


def _summarize(target: CommandTarget, pipeline: str, found: Mapping[str, Any]) -> list[object]:
    """Return the reports that are printed if no option selects one."""
    if target.lowered is None:
        return [explaining.summarize(target.module, **found)]
    partitioned = Pipeline.parse(pipeline)(target.module)
    return [
        explaining.summarize(target.module, partitioned=partitioned, **found),
        explaining.communication(partitioned, places=found["places"]),
    ]


def _refuse_program_options(options: Mapping[str, object], file: str, hlo: object) -> None:
    """Raise `CommandError` for an option of programs that is given with output of XLA."""
    text = "a folder" if hlo is None else "HLO text of XLA"
    for option, is_given in options.items():
        if is_given:
            raise CommandError(
                f"{option} is for programs of shardir, and {file!r} is {text}; only "
                "--mesh, --program and --rule apply to it"
            )


def _note_missing_locations(target: CommandTarget) -> None:
    """Print how to write source locations if a program from a file has none."""
    if target.lowered is None and target.locations is None and not _has_locations(target.module):
        typer.echo(
            f"note: {target.name} has no locations of the source; "
            "jax.jit(f).lower(...).as_text(debug_info=True) writes them",
            err=True,
        )


def _has_locations(module: Module) -> bool:
    return any(op.loc is not None for function in module.functions for op in function.body.walk())


def _explained_pipeline(target: CommandTarget, passes: str | None) -> str:
    """Return the pipeline that the option --passes states, with all its passes."""
    if passes is None:
        return target.pipeline(None)
    steps = Pipeline.parse(passes).passes
    if len(steps) == 1 and isinstance(steps[0], Propagate):
        # The propagation pass alone stands for the default pipeline with this pass.
        return str(ExplainedPipeline.divide(target.pipeline(None), steps[0]).whole)
    return target.pipeline(passes)


def _explain_dump_folder(
    folder: str, program: str | None, mesh: str | None, args: str | None, specs: str | None
) -> str:
    """Return the reports about the partitioned modules of a folder of XLA."""
    try:
        modules = find_dumped_modules(Path(folder))
    except OSError as error:
        raise CommandError(f"cannot read {folder!r}: {error.strerror}") from None
    if not modules:
        raise CommandError(
            f"{folder!r} has no file module_*.after_optimizations.txt; name a folder that XLA "
            f"wrote with XLA_FLAGS=--xla_dump_to={folder}"
        )
    parsed = [(each, _read_hlo_text(each.after)) for each in modules]
    partitioned = [
        (each, hlo) for each, hlo in parsed if hlo.partition_count * hlo.replica_count > 1
    ]
    if not partitioned:
        return f"{folder}: no module of {len(modules)} runs on several devices"
    if program is not None and len(partitioned) > 1:
        names = ", ".join(each.after.name for each, _ in partitioned)
        raise CommandError(
            f"{folder!r} has {len(partitioned)} modules for several devices, and --program "
            f"compares one; name its file: {names}"
        )
    reports = []
    for each, hlo in partitioned:
        if program is not None:
            reports.append(_explain_xla(hlo, program, mesh, args, specs))
            continue
        sizes = None if mesh is None else dict(parse_mesh(mesh).shape)
        if sizes is None and each.before is not None:
            sizes = find_mesh_axes(_read_hlo_text(each.before))
        inserted = None if each.partitioned is None else _read_hlo_text(each.partitioned)
        reports.append(explaining.xla_communication(hlo, sizes, after_partitioning=inserted))
    return "\n\n".join(map(str, reports))


def _read_hlo_text(path: Path) -> HloModule:
    text, name = read_text(str(path))
    return parse_hlo(text, name)


def _explain_xla(
    hlo: HloModule, program: str | None, mesh: str | None, args: str | None, specs: str | None
) -> object:
    """Return the report about XLA's collectives, beside our plan if the program is known."""
    if program is None:
        for option, is_given in (("--args", args), ("--specs", specs)):
            if is_given is not None:
                raise CommandError(f"{option} is for the function that --program names")
        sizes = None if mesh is None else dict(parse_mesh(mesh).shape)
        return explaining.xla_communication(hlo, sizes)
    if read_hlo(program) is not None:
        raise CommandError(
            f"{program!r} is HLO text; --program takes the text that XLA received, StableHLO with "
            "shardings: jax.jit(f).lower(...).as_text(debug_info=True)"
        )
    target = load_target(program, mesh, args, specs)
    return explaining.compare_with_xla(
        hlo, target.module, places=target.locations, pipeline=target.pipeline(None)
    )


def _echo_report(text: str, module: Module) -> None:
    """Print a report, on a terminal with the axes of shardings in color."""
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        text = terminal_text(text, [name for mesh in module.meshes for name, _ in mesh.axes])
    typer.echo(text)
