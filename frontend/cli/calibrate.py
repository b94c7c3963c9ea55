"""`shardir calibrate` fits tables of collectives, and measures this machine."""

from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from shardir.frontend.cli.options import CommandError
from shardir.machine.alpha_beta import AlphaBetaFit, fit_alpha_beta, group_of_bus_bandwidth
from shardir.machine.collective_table import read_table
from shardir.machine.description import LOCAL, local_description_path
from shardir.machine.toml_text import format_toml


def calibrate_table(file: Path, kind: str, group: int | None) -> None:
    """Fit the table of a collective and print the fit."""
    table = read_table(file)
    if group is None:
        group = group_of_bus_bandwidth(table) if kind == "all-reduce" else None
        if group is None:
            raise CommandError(
                f"the number of devices is not known for {str(file)!r}; state it with --group"
            )
    typer.echo(describe_fit(fit_alpha_beta(table, kind.replace("_", "-"), group), file))


def describe_fit(fit: AlphaBetaFit, file: Path) -> str:
    """Return a fit as text: constants, errors, and the entry for a description file."""
    source = f"fitted to the {fit.size_count} sizes of {file.name} (MAPE {fit.mean_error:.1%})"
    entry = {
        "kind": fit.kind,
        "group": fit.group,
        "latency": fit.latency,
        "bandwidth": fit.bandwidth,
        "source": source,
    }
    return "\n".join(
        [
            f"{fit.kind} over {fit.group} devices, {fit.size_count:,} sizes",
            f"latency    {fit.latency * 1e6:.1f} us",
            f"bandwidth  {fit.bandwidth / 1e9:.1f} GB/s",
            f"error      {fit.mean_error:.2%} mean, {fit.worst_error:.1%} worst",
            f"validated  {fit.validated_error:.2%} mean (5-fold cross-validation)",
            "",
            format_toml({"links": {"NAME": {"collectives": [entry]}}}).rstrip(),
        ]
    )


def calibrate_local(output: Path | None) -> None:
    """Measure this machine and write its description."""
    # For start-up time.
    from shardir.frontend.profiling.machine_calibration import measure_local_machine
    from shardir.machine.measurements import (
        describe_errors,
        describe_measurements,
        list_validated_errors,
    )

    path = output or local_description_path()
    console = Console(stderr=True)
    with ExitStack() as stack:
        show: Callable[[int, int], None] | None = None
        if console.is_terminal:
            bar = stack.enter_context(
                Progress(TextColumn("measuring"), BarColumn(), TimeElapsedColumn(), console=console)
            )
            task = bar.add_task("")

            def update(done: int, total: int) -> None:
                bar.update(task, completed=done, total=total)

            show = update

        measurements = measure_local_machine(progress=show)
    comment = f"Written by shardir calibrate --local at {datetime.now(UTC):%Y-%m-%d %H:%M} UTC."
    text = format_toml(describe_measurements(measurements), comment)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write {str(path)!r}: {error.strerror or error}") from None
    rate = max(size / seconds for size, seconds in measurements.matmul["f32"])
    bandwidth = measurements.copies[-1][0] / measurements.copies[-1][1]
    lines = [
        f"{measurements.processor}",
        f"matrix products    {rate / 1e9:.0f} GFLOP/s (f32)",
        f"memory             {bandwidth / 1e9:.1f} GB/s",
        f"launch             {measurements.launch_seconds * 1e9:.0f} ns",
    ]
    for name, errors in list_validated_errors(measurements).items():
        lines.append(f"{name:<18} {describe_errors(errors)}")
    name = LOCAL if output is None else str(path)
    typer.echo("\n".join(lines))
    typer.echo(f"wrote {path}; use it as the machine {name}")
