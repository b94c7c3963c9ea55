"""`shardir simulate` predicts the time and memory of a program on a machine."""

import typer

from shardir.frontend.cli.options import CommandError, SimulationFormat
from shardir.frontend.cli.program_reports import write_page
from shardir.frontend.cli.targets import load_target
from shardir.frontend.pipelines.costs import simulate_with_pipelines
from shardir.frontend.pipelines.inspection import describe_pipelines
from shardir.frontend.report.simulated_schedule import simulation_trace_events
from shardir.ops.opaque import check_no_opaque_operations
from shardir.passes.pipeline import DEFAULT_STEP, Pipeline
from shardir.passes.simulation import Simulation


def simulate_program(
    file: str,
    machine: str,
    mesh: str | None,
    args: str | None,
    specs: str | None,
    memory: str | None,
    link: list[str] | None,
    passes: str | None,
    target: str | None,
    html: str | None,
    to: SimulationFormat,
) -> None:
    """Print the simulation of a program."""
    links = _parse_links(link or ())
    pipeline = str(Pipeline.parse(DEFAULT_STEP if passes is None else passes))
    program = load_target(file, mesh, args, specs)
    check_no_opaque_operations(program.module)
    if (lowered := program.lowered_with(passes)) is not None:
        simulation: Simulation = lowered.simulate(
            machine, links=links or None, target=target, memory=memory
        )
    else:
        module = program.module
        if module.main.spmd is None or passes is not None:
            module = Pipeline.parse(pipeline)(describe_pipelines(module))
        simulation = simulate_with_pipelines(
            module,
            program.module if program.module.main.spmd is None else None,
            machine,
            links=links or None,
            target=target,
            memory=memory,
            places=program.locations,
        )
    if html is not None:
        write_page(program, pipeline, html, simulation)
    if to is SimulationFormat.trace_events:
        typer.echo(simulation_trace_events(simulation), nl=False)
    else:
        typer.echo(str(simulation))


def _parse_links(texts: list[str] | tuple[str, ...]) -> dict[str, str]:
    links = {}
    for text in texts:
        axis, equals, link = text.partition("=")
        if not (axis and equals and link):
            raise CommandError(
                f"{text!r} does not name the link of an axis; write it as model=nvlink"
            )
        links[axis] = link
    return links
