"""`shardir calibrate` fits tables of collectives and measured steps, and measures this machine."""

import csv
import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from shardir._imports.lazy_import import lazy_import
from shardir.errors import os_error_reason
from shardir.frontend.cli.options import CommandError
from shardir.machine.alpha_beta import AlphaBetaFit, fit_alpha_beta, group_of_bus_bandwidth
from shardir.machine.collective_table import read_table
from shardir.machine.description import MachineDescription
from shardir.machine.description_files import (
    LOCAL,
    list_descriptions,
    local_description_path,
    read_description,
)
from shardir.machine.measurements import (
    describe_errors,
    describe_measurements,
    list_validated_errors,
)
from shardir.machine.step_fit import (
    StepFit,
    describe_constants,
    describe_fit as describe_step_fit,
    fit_steps,
    list_constants,
)
from shardir.machine.toml_text import format_toml

if TYPE_CHECKING:
    from shardir.frontend.cli import targets
    from shardir.frontend.profiling import machine_calibration
else:
    machine_calibration = lazy_import("shardir.frontend.profiling.machine_calibration")
    targets = lazy_import("shardir.frontend.cli.targets")


def calibrate(
    table: Path | None,
    kind: str,
    group: int | None,
    local: bool,
    program: str | None,
    machine: str | None,
    fit: str,
    output: Path | None,
) -> None:
    """Fit a table of a collective or of steps, or measure this machine."""
    if local == (table is not None):
        raise CommandError("name a table of a collective, or --local to measure this machine")
    if (program is None) != (machine is None) or (program is not None and local):
        raise CommandError("--program and --machine belong together, with a table of steps")
    if table is None:
        calibrate_local(output)
    elif program is not None and machine is not None:
        calibrate_steps(table, program, machine, fit.split(","), output)
    elif output is not None:
        raise CommandError("--output is an option of --local and --program; this fit is printed")
    else:
        calibrate_table(table, kind, group)


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
    path = output or local_description_path()
    _check_writable(path)
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

        measurements = machine_calibration.measure_local_machine(progress=show)
    comment = f"Written by shardir calibrate --local at {datetime.now(UTC):%Y-%m-%d %H:%M} UTC."
    text = format_toml(describe_measurements(measurements), comment)
    _write(path, text)
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


TIME_COLUMN = re.compile(r"(?:seconds|.*\((?P<unit>s|ms|us)\))")
SECONDS_PER_UNIT = {None: 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}


class _SimulatedStep(Protocol):
    @property
    def step_seconds(self) -> float: ...


class _Program(Protocol):
    """A program that can be simulated, such as the result of `jit(f).lower(...)`."""

    def simulate(self, machine: str | PathLike[str]) -> _SimulatedStep: ...


def calibrate_steps(
    file: Path, program: str, machine: str, constants: Sequence[str], output: Path | None
) -> None:
    """Fit constants of a machine to measured steps, whose programs a function makes."""
    rows, measured = read_steps(file)
    _, make_program = targets.import_object(program)
    programs: list[_Program] = []
    for number, row in enumerate(rows, 1):
        with targets.as_command_errors(f"{program} makes no program for step {number} of {file}"):
            programs.append(make_program(**row))
    description = read_description(machine)
    base = machine if machine in list_descriptions() else str(Path(description.path).absolute())
    with TemporaryDirectory() as folder:
        changed = Path(folder) / f"{description.name}.toml"

        def predict(found: MachineDescription, step: int) -> float:
            notes = dict.fromkeys(list_constants(found), "changed by a fit")
            content = describe_constants(found, base, notes)
            changed.write_text(format_toml(content), encoding="utf-8")
            return programs[step].simulate(changed).step_seconds

        fit = fit_steps(description, constants, measured, predict)
    text = format_toml(describe_step_fit(fit, base, len(measured)))
    if output is not None:
        _write(output, text)
    lines = [_describe_step_fit(fit, len(measured))]
    lines.append(text.rstrip() if output is None else f"wrote {output}")
    typer.echo("\n\n".join(lines))


def read_steps(file: Path) -> tuple[list[dict[str, Any]], list[float]]:
    """Return the parameters and the seconds of measured steps: rows of a CSV file.

    The time is in the column `seconds` or one whose name ends in `(s)`, `(ms)` or `(us)`. Names of
    the other columns become names of arguments: `# GPUs` becomes `gpus`.
    """
    try:
        with file.open(encoding="utf-8", newline="") as opened:
            header, *rows = [row for row in csv.reader(opened) if row] or [[]]
    except (OSError, UnicodeDecodeError) as error:
        reason = os_error_reason(error)
        raise CommandError(f"cannot read {str(file)!r}: {reason}") from None
    times = [column for column, name in enumerate(header) if TIME_COLUMN.fullmatch(name.strip())]
    if len(times) != 1:
        raise CommandError(
            f"{file} has {len(times)} columns of times; measured steps have one column, seconds or "
            "a name that ends in (s), (ms) or (us)"
        )
    (time,) = times
    match = TIME_COLUMN.fullmatch(header[time].strip())
    assert match is not None
    scale = SECONDS_PER_UNIT[match["unit"]]
    names = [re.sub(r"\W+", "_", name.strip().lower()).strip("_") for name in header]
    parameters, measured = [], []
    for number, row in enumerate(rows, 2):
        try:
            measured.append(float(row[time]) * scale)
        except (ValueError, IndexError):
            raise CommandError(
                f"{file}: row {number} is {','.join(row)!r}; it has no time"
            ) from None
        parameters.append(
            {
                names[column]: _parse_value(value)
                for column, value in enumerate(row)
                if column != time and column < len(names)
            }
        )
    return parameters, measured


def _parse_value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text.strip()


def _describe_step_fit(fit: StepFit, step_count: int) -> str:
    width = max(map(len, (*fit.factors, "validated"))) + 2
    return "\n".join(
        [
            f"{fit.description.name}, {step_count} steps",
            *(f"{name:<{width}}times {factor:.3g}" for name, factor in fit.factors.items()),
            f"{'error':<{width}}{fit.mean_error:.2%} mean, {fit.worst_error:.1%} worst",
            f"{'validated':<{width}}{fit.validated_error:.2%} mean (5-fold cross-validation)",
        ]
    )


def _check_writable(path: Path) -> None:
    """Raise `CommandError` if a file cannot be written, so that no measurements are lost."""
    is_new = not path.exists()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()
        if is_new:
            path.unlink()
    except OSError as error:
        raise _write_error(path, error) from None


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _write_error(path, error) from None


def _write_error(path: Path, error: OSError) -> CommandError:
    return CommandError(f"cannot write {str(path)!r}: {os_error_reason(error)}")
