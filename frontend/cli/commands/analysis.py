"""Commands that explain, measure and predict what a program does on its mesh."""

from pathlib import Path
from typing import Annotated

import typer

from shardir.frontend.cli.commands.declaration import (
    PassPipeline,
    command,
    complete_machine,
    complete_pipeline,
)
from shardir.frontend.cli.options import (
    Arguments,
    FileOrFunction,
    MeshSizes,
    ReportFormat,
    RuleTexts,
    Seed,
    SimulationFormat,
    Specs,
)


@command(
    "explain",
    "explain:explain_program",
    examples=(
        "shardir explain mlp.ir",
        "shardir explain mlp.ir --value %h",
        "shardir explain mlp.ir --conflicts",
        'shardir explain mlp.ir --what-if "%w1: f32[128, 256@model]" --without %x',
        "shardir explain mlp.ir --order",
        "shardir explain mlp.ir --coverage",
        "shardir explain mlp.ir --memory",
        "shardir explain mymodule:train_step --mesh data=16,model=16",
        "shardir explain mymodule:train_step --mesh data=16,model=16 --html step.html",
        "shardir explain model.mlir --html model.html",
        "shardir explain module_0012.jit_step.cpu_after_optimizations.txt",
        "shardir explain after_optimizations.txt --program step.mlir",
        "shardir explain xla_dump_folder",
    ),
)
def explain(
    file: FileOrFunction,
    mesh: MeshSizes = None,
    args: Arguments = None,
    specs: Specs = None,
    value: Annotated[
        list[str] | None,
        typer.Option(
            help="print why a value, or `result 0`, has its mesh axes, and why it has no others"
        ),
    ] = None,
    conflicts: Annotated[
        bool, typer.Option("--conflicts", help="print conflicting shardings, and their resolution")
    ] = False,
    what_if: Annotated[
        list[str] | None,
        typer.Option(help="print what changes with an annotation such as %w: f32[128, 256@model]"),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(help="print what changes without the annotation of %w, or of `result 0`"),
    ] = None,
    order: Annotated[
        bool,
        typer.Option(
            "--order", help="print the values whose shardings depend on the propagation order"
        ),
    ] = False,
    coverage: Annotated[
        bool,
        typer.Option(
            "--coverage",
            help="print operations without sharding rules and annotations without effect",
        ),
    ] = False,
    communication: Annotated[
        bool,
        typer.Option(
            "--communication", help="print tables of collectives by kind, mesh axes and source line"
        ),
    ] = False,
    memory: Annotated[
        bool,
        typer.Option(
            "--memory",
            help="print the values that are alive at the peak of the memory, by source line",
        ),
    ] = False,
    collective: Annotated[
        list[str] | None,
        typer.Option(help="print the cause of the collective whose result has this name"),
    ] = None,
    function: Annotated[
        str | None,
        typer.Option(help="function of --value, --what-if and --without (default: the first)"),
    ] = None,
    passes: Annotated[
        str | None,
        typer.Option(
            help="pass pipeline, such as default,overlap, or propagation pass, such as "
            "propagate{level=basic}",
            autocompletion=complete_pipeline,
        ),
    ] = None,
    rule: RuleTexts = None,
    program: Annotated[
        str | None,
        typer.Option(
            help="StableHLO file that XLA compiled, to compare XLA's collectives with shardir's"
        ),
    ] = None,
    propagation_edges: Annotated[
        bool,
        typer.Option(
            "--propagation-edges",
            help="print StableHLO text in which operations state the steps of propagation, as "
            "sdy.propagation_edges",
        ),
    ] = False,
    html: Annotated[
        str | None,
        typer.Option(help="write an HTML page with all stages and explanations to this file"),
    ] = None,
    to: Annotated[
        ReportFormat | None,
        typer.Option(help="print all numbers of the --html page in this format"),
    ] = None,
) -> None:
    """Explain the shardings of a program.

    Without options, the command prints a summary. The options print the origin of a sharding,
    conflicts, the effect of other annotations, communication, and memory.
    """


@command(
    "profile",
    "profile:profile_function",
    examples=(
        "shardir profile mymodule:train_step --mesh data=4,model=2",
        "shardir profile mymodule:train_step --runs 20 --trace step.json",
    ),
)
def profile(
    function: Annotated[str, typer.Argument(help="function to run, as module:function")],
    mesh: MeshSizes = None,
    args: Arguments = None,
    specs: Specs = None,
    runs: Annotated[int, typer.Option(min=1, help="number of measured runs")] = 5,
    trace: Annotated[
        Path | None, typer.Option(help="file that receives a trace of the last run, for Perfetto")
    ] = None,
    seed: Seed = 0,
) -> None:
    """Measure the time of each operation of a function.

    The function runs on virtual CPU devices. Arguments for which example_args state only a shape
    are random.
    """


@command(
    "simulate",
    "simulate:simulate_program",
    examples=(
        "shardir simulate mymodule:train_step --mesh data=64,model=8 --machine a100x8",
        "shardir simulate mymodule:train_step --mesh data=64,model=8 --machine a100x8 "
        "--memory 80GiB",
        "shardir simulate mymodule:train_step --mesh data=8 --machine h100x8 "
        "--passes default,overlap",
        "shardir simulate mlp.ir --machine cluster.toml --link model=nvlink",
        "shardir simulate mlp.ir --machine a100x8 --to trace-events",
    ),
)
def simulate(
    file: FileOrFunction,
    machine: Annotated[
        str,
        typer.Option(
            help="name or .toml file of a machine description",
            autocompletion=complete_machine,
        ),
    ],
    mesh: MeshSizes = None,
    args: Arguments = None,
    specs: Specs = None,
    memory: Annotated[
        str | None,
        typer.Option(
            help="memory of a device, such as 80GiB; print whether the program fits, and remedies"
        ),
    ] = None,
    link: Annotated[
        list[str] | None,
        typer.Option(help="link of the machine that connects a mesh axis, such as model=nvlink"),
    ] = None,
    passes: PassPipeline = None,
    target: Annotated[
        str | None,
        typer.Option(help="target of `shardir emit` whose passes form kernels, such as gpu"),
    ] = None,
    html: Annotated[
        str | None, typer.Option(help="write an HTML page with the simulation to this file")
    ] = None,
    to: Annotated[
        SimulationFormat,
        typer.Option(help="format of the output: a table, or a timeline for Perfetto"),
    ] = SimulationFormat.text,
) -> None:
    """Predict the time and memory of a step on a machine."""


@command(
    "calibrate",
    "calibrate:calibrate",
    examples=(
        "shardir calibrate --local",
        "shardir calibrate AR_GPU8_1M_1024M_LUT",
        "shardir calibrate gather.csv --kind all-gather --group 16",
        "shardir calibrate steps.csv --program model:make_step --machine a100x8 "
        "--fit matmul,launch",
    ),
)
def calibrate(
    table: Annotated[
        Path | None,
        typer.Argument(
            help="CSV file of measured times of a collective, or of steps (with --program)"
        ),
    ] = None,
    kind: Annotated[str, typer.Option(help="kind of collective in the table")] = "all-reduce",
    group: Annotated[
        int | None,
        typer.Option(
            help="number of devices (default: computed from the bus bandwidth in the table)"
        ),
    ] = None,
    local: Annotated[
        bool, typer.Option("--local", help="measure the CPU backend on this machine")
    ] = False,
    program: Annotated[
        str | None,
        typer.Option(
            help="function that returns the lowered program of a step, as module:function"
        ),
    ] = None,
    machine: Annotated[
        str | None,
        typer.Option(
            help="machine description whose constants are fitted to the steps",
            autocompletion=complete_machine,
        ),
    ] = None,
    fit: Annotated[
        str, typer.Option(help="constants to fit to the steps, separated by commas")
    ] = "matmul,memory",
    output: Annotated[
        Path | None, typer.Option(help="TOML file that receives the machine description")
    ] = None,
) -> None:
    """Fit a machine description to measurements.

    For a table of a collective, the command prints its latency and bandwidth, and the entry for a
    description. With --local, it measures products, other operations, calls and collectives on this
    machine, and writes its description, the machine "local". It also prints cross-validated errors.

    With --program, the table has one measured step in each row. The function receives the other
    columns as keyword arguments and returns the lowered program of the step. Its simulated times
    determine factors of constants: matmul, pointwise, memory, launch, launch.interval, links.NAME
    and links.NAME.latency.
    """
