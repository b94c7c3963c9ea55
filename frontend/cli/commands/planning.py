"""Commands that search shardings, strategies and schedules."""

from pathlib import Path
from typing import Annotated

import typer

from shardir.frontend.cli.commands.declaration import command, complete_machine
from shardir.frontend.cli.options import Arguments, PlanFormat, Specs


@command(
    "plan",
    "plan:plan_function",
    examples=(
        "shardir plan mymodule:train_step --mesh data=16,model=16 --machine tpu-v5p",
        "shardir plan mymodule:train_step --mesh 16x16 --machine tpu-v5p --memory 80GiB",
        'shardir plan mymodule:train_step --mesh 4x2 --why-not "%w1: f32[128, 256@model]"',
        "shardir plan mymodule:train_step --devices 256 --machine tpu-v5p",
        "shardir plan mymodule:train_step --mesh 16x16 --export jax > specs.py",
        "shardir plan mymodule:train_step --mesh 16x16 --html plan.html",
    ),
)
def plan(
    function: Annotated[str, typer.Argument(help="function to plan, as module:function")],
    mesh: Annotated[
        str | None,
        typer.Option(help="mesh axes and their sizes: data=16,model=16, or 16x16 for the same"),
    ] = None,
    devices: Annotated[
        int | None,
        typer.Option(
            min=2, help="number of devices; try all meshes of them with the axes data and model"
        ),
    ] = None,
    machine: Annotated[
        str | None,
        typer.Option(
            help="name or .toml file of a machine description",
            autocompletion=complete_machine,
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(help="memory of a device, such as 80GiB (default: that of the machine)"),
    ] = None,
    batch: Annotated[
        list[str] | None,
        typer.Option(
            help="argument whose first dimension is the batch (default: each argument of which "
            "the function returns no new value)"
        ),
    ] = None,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="keep the shardings of --specs, and search only the others"),
    ] = False,
    args: Arguments = None,
    specs: Specs = None,
    evaluations: Annotated[
        int, typer.Option(min=1, help="maximum number of candidates that the search evaluates")
    ] = 400,
    why_not: Annotated[
        list[str] | None,
        typer.Option(
            help="compare with the plan for this sharding, such as '%w1: f32[128, 256@model]'"
        ),
    ] = None,
    pareto: Annotated[
        bool, typer.Option("--pareto", help="list the candidates by cost and memory")
    ] = False,
    bound: Annotated[
        bool,
        typer.Option("--bound", help="print a proven lower bound of time, flops and sent bytes"),
    ] = False,
    export: Annotated[
        PlanFormat | None, typer.Option(help="print the plan as code instead of a table")
    ] = None,
    html: Annotated[
        str | None,
        typer.Option(help="write a page with the program and the decisions of the plan"),
    ] = None,
) -> None:
    """Find shardings of the arguments of a function.

    The search partitions the program for each candidate, and minimizes the predicted time of one
    run on the machine, within the memory of a device. Without a machine, it divides the arithmetic
    over the devices, and then minimizes the bytes that each device sends.
    """


@command(
    "solve",
    "solve:solve_instance",
    examples=(
        "shardir solve G.json.gz --seconds 120",
        "shardir solve G.json.gz --output plan.json",
        "shardir solve G.json.gz --start plan.json --evaluate",
    ),
)
def solve(
    file: Annotated[
        Path, typer.Argument(help="planning problem: a JSON file, or one compressed by gzip")
    ],
    seconds: Annotated[float, typer.Option(help="time limit of the search in seconds")] = 60.0,
    start: Annotated[
        Path | None, typer.Option(help="JSON file with the strategies from which the search starts")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="file that receives the strategies as a JSON list")
    ] = None,
    evaluate_only: Annotated[
        bool,
        typer.Option(
            "--evaluate", help="print only the cost and the peak of the strategies of --start"
        ),
    ] = False,
    engine: Annotated[str, typer.Option(help="solver: auto, exact or search")] = "auto",
) -> None:
    """Solve a planning problem.

    A solution chooses a strategy for each node, with the least cost for which the memory is within
    the limit. The format of problems is that of the IOPDDL contest. The engine `exact` is
    toulbar2 (extra `exact`), and the engine `search` combines message passing and local search;
    `auto` runs both at the same time, or `search` alone without toulbar2. All engines print a
    proven lower bound of the cost. Ctrl-C ends the search with the best solution so far.
    """


@command(
    "pipeline-schedule",
    "pipeline_schedule:print_schedule",
    examples=(
        "shardir pipeline-schedule 1f1b --ranks 4 --microbatches 8",
        "shardir pipeline-schedule zbv --ranks 4 --microbatches 8 --times 10,9,7 --transfer 0.5",
        "shardir pipeline-schedule search --ranks 8 --microbatches 24 --memory-limit 16",
        "shardir pipeline-schedule 1f1b --ranks 4 --microbatches 8 --transfers --output 1f1b.csv",
        "shardir pipeline-schedule 1f1b.csv --sends rendezvous",
    ),
)
def pipeline_schedule(
    schedule: Annotated[
        str,
        typer.Argument(
            help="name of a published schedule, `search`, or a CSV file in PyTorch's notation"
        ),
    ],
    ranks: Annotated[int | None, typer.Option(help="number of ranks")] = None,
    microbatches: Annotated[int | None, typer.Option(help="number of microbatches")] = None,
    stages_per_rank: Annotated[
        int | None,
        typer.Option(help="number of stages of each rank, for schedules that allow several"),
    ] = None,
    times: Annotated[
        str, typer.Option(help="times of a forward pass, an input gradient and a weight gradient")
    ] = "1,1,1",
    transfer: Annotated[float, typer.Option(help="time of a transfer between two ranks")] = 0,
    memory: Annotated[
        str,
        typer.Option(
            help="activation memory of a microbatch before its input gradient, and between its "
            "input gradient and its weight gradient"
        ),
    ] = "1,1",
    memory_limit: Annotated[
        float | None, typer.Option(help="maximum activation memory of a rank, for `search`")
    ] = None,
    has_transfers: Annotated[
        bool, typer.Option("--transfers", help="insert sends and receives")
    ] = False,
    sends: Annotated[
        str,
        typer.Option(
            help="when a send completes: buffered (immediately) or rendezvous (with its receive)"
        ),
    ] = "buffered",
    output: Annotated[
        Path | None, typer.Option(help="file that receives the schedule as CSV")
    ] = None,
) -> None:
    """Print, verify and simulate a pipeline schedule.

    The simulation predicts the time and memory of the schedule.

    The schedules are gpipe, 1f1b, interleaved-1f1b, looped-bfs, interleaved-zero-bubble, zb-h1,
    zb-h2, zbv and dualpipev. `search` finds a schedule whose ranks hold at most --memory-limit
    activations. A schedule that never ends is refused, and the error names the cycle.
    """
