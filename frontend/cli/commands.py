"""The commands, with their options and the examples of their help texts.

Each command calls the module of its name (`test`: `story_tests`), which is imported on the call:
`shardir --help`, and the completion of a shell, start without the compiler.
"""

from pathlib import Path
from typing import Annotated

import typer

from shardir.frontend.cli.completion import complete_pass, complete_pipeline, complete_target
from shardir.frontend.cli.options import (
    Arguments,
    CommandError,
    FileOrFunction,
    MeshSizes,
    ModuleFormat,
    PlanFormat,
    ReportFormat,
    RuleTexts,
    Seed,
    SimulationFormat,
    Specs,
)

OPT_EXAMPLES = """Examples:

  shardir opt mlp.ir --passes propagate

  shardir opt mlp.ir --passes "propagate,reshard,partition" --verify

  shardir opt mymodule:train_step --mesh data=4,model=2 --passes propagate

  shardir opt mlp.ir --dump-dir stages/

  shardir opt mlp.ir --passes propagate --to stablehlo

  shardir opt mlp.mlir --passes propagate

  shardir opt mlp.mlir --passes propagate --rule "my_op: i j, j k -> i k reduction={j}"

  cat mlp.ir | shardir opt - --passes cse,dce --locations"""


def opt(
    file: FileOrFunction = "-",
    passes: Annotated[
        str | None,
        typer.Option(
            help="the pipeline as text; `none` only verifies and prints "
            "(default: the default pipeline, which `shardir passes` prints)",
            autocompletion=complete_pipeline,
        ),
    ] = None,
    verify_numbers: Annotated[
        bool,
        typer.Option(
            "--verify", help="run the program before and after each pass and compare the results"
        ),
    ] = False,
    dump_dir: Annotated[
        Path | None, typer.Option(help="write the program after each pass into this folder")
    ] = None,
    locations: Annotated[
        bool, typer.Option("--locations", help="print the source location of each operation")
    ] = False,
    from_: Annotated[
        ModuleFormat | None,
        typer.Option("--from", help="format of the file (default: detected)"),
    ] = None,
    to: Annotated[
        ModuleFormat, typer.Option(help="format of the printed result")
    ] = ModuleFormat.ir,
    rule: RuleTexts = None,
    mesh: MeshSizes = None,
    args: Arguments = None,
    specs: Specs = None,
) -> None:
    """Run passes on a module and print the result.

    The parts of a .mlir file between lines of // ----- are separate modules.
    """
    # For start-up time.
    from shardir.frontend.cli.opt import run_passes

    run_passes(
        file=file,
        passes=passes,
        verify_numbers=verify_numbers,
        dump_dir=dump_dir,
        locations=locations,
        from_=from_,
        to=to,
        rule=rule,
        mesh=mesh,
        args=args,
        specs=specs,
    )


RUN_EXAMPLES = """Examples:

  shardir run mlp.ir

  shardir run mlp.ir x.npy w1.npy b1.npy w2.npy b2.npy --save out/

  shardir run mymodule:train_step --mesh data=4,model=2

  shardir run mlp.ir --seed 7 --passes "propagate,reshard,partition" """


def run(
    file: FileOrFunction,
    inputs: Annotated[
        list[Path] | None,
        typer.Argument(
            help="one .npy file per argument (default: the arrays of example_args, or random ones)"
        ),
    ] = None,
    passes: Annotated[
        str | None, typer.Option(help="the pipeline as text", autocompletion=complete_pipeline)
    ] = None,
    seed: Seed = 0,
    save: Annotated[Path | None, typer.Option(help="folder for the results as .npy files")] = None,
    mesh: MeshSizes = None,
    args: Arguments = None,
    specs: Specs = None,
) -> None:
    """Run a program on all devices of its mesh and print its results and their shardings."""
    # For start-up time.
    from shardir.frontend.cli.run import run_program

    run_program(
        file=file,
        inputs=inputs,
        passes=passes,
        seed=seed,
        save=save,
        mesh=mesh,
        args=args,
        specs=specs,
    )


EXPLAIN_EXAMPLES = """Examples:

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

  shardir explain after_optimizations.txt --program step.mlir

  shardir explain xla_dump_folder"""


def explain(
    file: FileOrFunction,
    mesh: MeshSizes = None,
    args: Arguments = None,
    specs: Specs = None,
    value: Annotated[
        list[str] | None,
        typer.Option(
            help="origin of each mesh axis of a value or of `result 0`, and why others are absent"
        ),
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
        str | None,
        typer.Option(
            help="the pipeline, such as default,overlap, or its propagation pass, such as "
            "propagate{level=basic}",
            autocompletion=complete_pipeline,
        ),
    ] = None,
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
    # For start-up time.
    from shardir.frontend.cli.explain import explain_program

    explain_program(
        file=file,
        mesh=mesh,
        args=args,
        specs=specs,
        value=value,
        conflicts=conflicts,
        what_if=what_if,
        without=without,
        order=order,
        coverage=coverage,
        communication=communication,
        collective=collective,
        function=function,
        passes=passes,
        rule=rule,
        program=program,
        html=html,
        to=to,
    )


SIMULATE_EXAMPLES = """Examples:

  shardir simulate mymodule:train_step --mesh data=64,model=8 --machine a100x8

  shardir simulate mymodule:train_step --mesh data=64,model=8 --machine a100x8 --memory 80GiB

  shardir simulate mymodule:train_step --mesh data=8 --machine h100x8 --passes default,overlap

  shardir simulate mlp.ir --machine cluster.toml --link model=nvlink

  shardir simulate mlp.ir --machine a100x8 --to trace-events"""


def simulate(
    file: FileOrFunction,
    machine: Annotated[
        str, typer.Option(help="name of a machine description, or a file that ends in .toml")
    ],
    mesh: MeshSizes = None,
    args: Arguments = None,
    specs: Specs = None,
    memory: Annotated[
        str | None,
        typer.Option(help="memory of a device, such as 80GiB; states whether the program fits"),
    ] = None,
    link: Annotated[
        list[str] | None, typer.Option(help="link of a mesh axis, such as model=nvlink")
    ] = None,
    passes: Annotated[
        str | None,
        typer.Option(
            help="passes, such as default,overlap (default: those of jit)",
            autocompletion=complete_pipeline,
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="target of emit whose passes form kernels, such as gpu")
    ] = None,
    html: Annotated[
        str | None, typer.Option(help="write the report with the simulation to this page")
    ] = None,
    to: Annotated[
        SimulationFormat, typer.Option(help="a table, or a timeline for Perfetto")
    ] = SimulationFormat.text,
) -> None:
    """Predict the time and the memory of one step of a program on a machine."""
    # For start-up time.
    from shardir.frontend.cli.simulate import simulate_program

    simulate_program(
        file=file,
        machine=machine,
        mesh=mesh,
        args=args,
        specs=specs,
        memory=memory,
        link=link,
        passes=passes,
        target=target,
        html=html,
        to=to,
    )


EMIT_EXAMPLES = """Examples:

  shardir emit mlp.ir --target gpu -o mlp/

  shardir emit mymodule:train_step --mesh data=4,model=2 --target gpu -o step/ --selftest

  shardir emit mlp.ir --target gpu -o mlp/ --passes default,overlap

  shardir opt mlp.ir | shardir emit - --target ipu -o mlp/"""


def emit(
    file: FileOrFunction,
    target: Annotated[
        str, typer.Option(help="the target: gpu or ipu", autocompletion=complete_target)
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="output folder")],
    mesh: MeshSizes = None,
    passes: Annotated[
        str | None,
        typer.Option(
            help="the pipeline, such as default,overlap (default: the default pipeline)",
            autocompletion=complete_pipeline,
        ),
    ] = None,
    args: Arguments = None,
    specs: Specs = None,
    selftest: Annotated[
        bool,
        typer.Option("--selftest", help="add random arguments and the expected results"),
    ] = False,
    seed: Seed = 0,
    selftest_seconds: Annotated[
        float | None,
        typer.Option(help="time limit in seconds for the results of the self-test (default: 60)"),
    ] = None,
    inputs: Annotated[
        list[Path] | None,
        typer.Option("--input", help="a .npy file for each argument of the self-test, in order"),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="an option of the target, such as name=value")
    ] = None,
) -> None:
    """Write a program as source text for a target, and print the names of the files."""
    # For start-up time.
    from shardir.frontend.cli.emit import emit_program

    emit_program(
        file=file,
        target=target,
        out=out,
        mesh=mesh,
        passes=passes,
        args=args,
        specs=specs,
        selftest=selftest,
        seed=seed,
        selftest_seconds=selftest_seconds,
        inputs=inputs,
        option=option,
    )


DRAW_EXAMPLES = """Examples:

  shardir draw mlp.ir > mlp.dot

  shardir draw mymodule:train_step --mesh data=4 --passes default -o step.svg"""


def draw(
    file: FileOrFunction,
    mesh: MeshSizes = None,
    args: Arguments = None,
    specs: Specs = None,
    passes: Annotated[
        str | None,
        typer.Option(
            help="the pipeline before the drawing (default: none)", autocompletion=complete_pipeline
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="a .dot or .svg file (default: print DOT)"),
    ] = None,
) -> None:
    """Draw the first function of a program: operations as boxes, values as edges.

    SVG requires Graphviz.
    """
    # For start-up time.
    from shardir.frontend.cli.draw import draw_program

    draw_program(
        file=file,
        mesh=mesh,
        args=args,
        specs=specs,
        passes=passes,
        out=out,
    )


PROFILE_EXAMPLES = """Examples:

  shardir profile mymodule:train_step --mesh data=4,model=2

  shardir profile mymodule:train_step --runs 20 --trace step.json"""


def profile(
    function: Annotated[str, typer.Argument(help="the function, as module:function")],
    mesh: MeshSizes = None,
    args: Arguments = None,
    specs: Specs = None,
    runs: Annotated[int, typer.Option(min=1, help="number of measured runs")] = 5,
    trace: Annotated[
        Path | None, typer.Option(help="file for the last run, which Perfetto shows")
    ] = None,
    seed: Seed = 0,
) -> None:
    """Run a function on virtual CPU devices, and print the time of each operation.

    Arguments of which example_args have a shape only are random.
    """
    # For start-up time.
    from shardir.frontend.cli.profile import profile_function

    profile_function(
        function=function,
        mesh=mesh,
        args=args,
        specs=specs,
        runs=runs,
        trace=trace,
        seed=seed,
    )


PASSES_EXAMPLES = """Examples:

  shardir passes

  shardir passes reshard"""


def passes(
    name: Annotated[
        str | None,
        typer.Argument(
            help="a pass to describe completely (default: list all)", autocompletion=complete_pass
        ),
    ] = None,
) -> None:
    """List the passes and their options, or describe one pass."""
    # For start-up time.
    from shardir.frontend.cli.passes import list_passes

    list_passes(name)


TEST_EXAMPLES = """Examples:

  shardir test stories/mlp.ir

  shardir test stories/

  shardir test stories/ --update

  shardir test mymodule:train_step --mesh data=4,model=2"""


def check_stories(
    path: Annotated[
        str, typer.Argument(help="a story file, a folder of story files, or module:function")
    ],
    update: Annotated[
        bool,
        typer.Option("--update", help="rewrite the stories with the results of their pipelines"),
    ] = False,
    passes: Annotated[
        str | None,
        typer.Option(
            help="the pipeline of a function, such as default,overlap",
            autocompletion=complete_pipeline,
        ),
    ] = None,
    mesh: MeshSizes = None,
    args: Arguments = None,
    specs: Specs = None,
) -> None:
    """Check that the pipelines of story files make the programs that the files show.

    A story file is IR text. A heading such as // ===== propagate names the pipeline that makes the
    program below the heading of the program above it. The results of all programs must be equal.

    For a function, check that its program on the devices of the mesh computes the same results as
    the unsharded program, for the arrays of its example arguments or random ones.
    """
    # For start-up time.
    from shardir.frontend.cli.story_tests import check_stories

    check_stories(
        path=path,
        update=update,
        passes=passes,
        mesh=mesh,
        args=args,
        specs=specs,
    )


SOLVE_EXAMPLES = """Examples:

  shardir solve G.json.gz --seconds 120

  shardir solve G.json.gz --output plan.json

  shardir solve G.json.gz --start plan.json --evaluate"""


def solve(
    file: Annotated[Path, typer.Argument(help="a planning problem: JSON, possibly with gzip")],
    seconds: Annotated[float, typer.Option(help="time limit")] = 60.0,
    start: Annotated[
        Path | None, typer.Option(help="JSON list of strategies to begin with")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="file that receives the strategies as a JSON list")
    ] = None,
    evaluate: Annotated[
        bool, typer.Option("--evaluate", help="print the cost and the peak of --start only")
    ] = False,
    engine: Annotated[str, typer.Option(help="auto, exact or search")] = "auto",
) -> None:
    """Choose a strategy for each node of a planning problem, at least cost within its memory.

    The format is that of the IOPDDL contest. The engine `exact` is HiGHS (extra `exact`), and the
    engine `search` combines message passing and local search; `auto` runs both at the same time,
    or `search` alone without HiGHS. All print a lower bound that no solution can be below. Ctrl-C
    ends the search with the best solution so far.
    """
    # For start-up time.
    from shardir.frontend.cli.solve import solve_instance

    solve_instance(file, seconds, start, output, evaluate, engine)


PLAN_EXAMPLES = """Examples:

  shardir plan mymodule:train_step --mesh data=16,model=16 --machine tpu-v5p

  shardir plan mymodule:train_step --mesh 16x16 --machine tpu-v5p --memory 80GiB

  shardir plan mymodule:train_step --mesh 4x2 --why-not "%w1: f32[128, 256@model]"

  shardir plan mymodule:train_step --devices 256 --machine tpu-v5p

  shardir plan mymodule:train_step --mesh 16x16 --export jax > specs.py"""


def plan(
    function: Annotated[str, typer.Argument(help="a function, as module:function")],
    mesh: Annotated[
        str | None, typer.Option(help="mesh, such as data=16,model=16, or 16x16 for this one")
    ] = None,
    devices: Annotated[
        int | None,
        typer.Option(min=2, help="number of devices; tries meshes with the axes data and model"),
    ] = None,
    machine: Annotated[
        str | None,
        typer.Option(help="name of a machine description, or a file that ends in .toml"),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(help="memory of a device, such as 80GiB (default: that of the machine)"),
    ] = None,
    batch: Annotated[
        list[str] | None,
        typer.Option(
            help="argument whose first dimension is the batch (default: those without a next value)"
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="respect the shardings that the specs state")
    ] = False,
    args: Arguments = None,
    specs: Specs = None,
    evaluations: Annotated[
        int, typer.Option(min=1, help="number of candidates that the search evaluates at most")
    ] = 400,
    why_not: Annotated[
        list[str] | None,
        typer.Option(help="plan again with this sharding, such as '%w1: f32[128, 256@model]'"),
    ] = None,
    pareto: Annotated[
        bool, typer.Option("--pareto", help="list the candidates by cost and memory")
    ] = False,
    export: Annotated[
        PlanFormat | None, typer.Option(help="print the plan as code instead of a table")
    ] = None,
) -> None:
    """Find shardings of the arguments of a function on a mesh.

    The search partitions the program for each candidate, and minimizes the predicted time of one
    run on the machine within its memory. Without a machine it divides the arithmetic over the
    devices, and then minimizes the bytes that each device sends.
    """
    # For start-up time.
    from shardir.frontend.cli.plan import plan_function

    plan_function(
        function=function,
        mesh=mesh,
        devices=devices,
        machine=machine,
        memory=memory,
        batch=batch,
        keep=keep,
        args=args,
        specs=specs,
        evaluations=evaluations,
        why_not=why_not,
        pareto=pareto,
        export=export,
    )


PIPELINE_SCHEDULE_EXAMPLES = """Examples:

  shardir pipeline-schedule 1f1b --ranks 4 --microbatches 8

  shardir pipeline-schedule zbv --ranks 4 --microbatches 8 --times 10,9,7 --transfer 0.5

  shardir pipeline-schedule search --ranks 8 --microbatches 24 --memory-limit 16

  shardir pipeline-schedule 1f1b --ranks 4 --microbatches 8 --transfers --output 1f1b.csv

  shardir pipeline-schedule 1f1b.csv --sends rendezvous"""


def pipeline_schedule(
    schedule: Annotated[
        str,
        typer.Argument(
            help="the name of a published schedule, `search`, or a CSV file in torch's notation"
        ),
    ],
    ranks: Annotated[int | None, typer.Option(help="number of ranks")] = None,
    microbatches: Annotated[int | None, typer.Option(help="number of microbatches")] = None,
    stages_per_rank: Annotated[
        int | None,
        typer.Option(help="number of stages of each rank, if it is free"),
    ] = None,
    times: Annotated[
        str, typer.Option(help="time of a forward pass, an input gradient and a weight gradient")
    ] = "1,1,1",
    transfer: Annotated[float, typer.Option(help="time of a transfer between two ranks")] = 0,
    memory: Annotated[
        str,
        typer.Option(
            help="activations of a microbatch until its input gradient, and then until its weight "
            "gradient"
        ),
    ] = "1,1",
    memory_limit: Annotated[
        float | None, typer.Option(help="the most activations of a rank, for `search`")
    ] = None,
    transfers: Annotated[
        bool, typer.Option("--transfers", help="insert sends and receives")
    ] = False,
    sends: Annotated[
        str, typer.Option(help="when a send ends: buffered, or rendezvous (with its receive)")
    ] = "buffered",
    output: Annotated[
        Path | None, typer.Option(help="file that receives the schedule as CSV")
    ] = None,
) -> None:
    """Print a schedule of pipeline parallelism, verify it, and simulate its time and memory.

    The schedules are gpipe, 1f1b, interleaved-1f1b, looped-bfs, interleaved-zero-bubble, zb-h1,
    zb-h2, zbv and dualpipev. `search` finds a schedule whose ranks hold at most --memory-limit
    activations. A schedule that never ends is refused, and the error names the cycle.
    """
    # For start-up time.
    from shardir.frontend.cli.pipeline_schedule import print_schedule

    print_schedule(
        schedule,
        ranks=ranks,
        microbatches=microbatches,
        stages_per_rank=stages_per_rank,
        times=times,
        transfer=transfer,
        memory=memory,
        memory_limit=memory_limit,
        has_transfers=transfers,
        sends=sends,
        output=output,
    )


CALIBRATE_EXAMPLES = """Examples:

  shardir calibrate --local

  shardir calibrate AR_GPU8_1M_1024M_LUT

  shardir calibrate gather.csv --kind all-gather --group 16

  shardir calibrate steps.csv --program model:make_step --machine a100x8 --fit matmul,launch"""


def calibrate(
    table: Annotated[
        Path | None,
        typer.Argument(help="measured times of a collective, or of steps (with --program)"),
    ] = None,
    kind: Annotated[str, typer.Option(help="the collective of the table")] = "all-reduce",
    group: Annotated[
        int | None, typer.Option(help="number of devices (default: from the bus bandwidth)")
    ] = None,
    local: Annotated[
        bool, typer.Option("--local", help="measure the CPU backend on this machine")
    ] = False,
    program: Annotated[
        str | None, typer.Option(help="module:function that makes the program of a step")
    ] = None,
    machine: Annotated[
        str | None, typer.Option(help="description whose constants are fitted to steps")
    ] = None,
    fit: Annotated[str, typer.Option(help="constants that are fitted to steps")] = "matmul,memory",
    output: Annotated[Path | None, typer.Option(help="file that receives the description")] = None,
) -> None:
    """Fit the numbers of a machine description to measurements, with cross-validated errors.

    For a table of a collective, print its latency and bandwidth, and the entry for a description.
    With --local, measure products, elementwise operations and collectives on this machine, and
    write its description, the machine "local".

    With --program, the table has one measured step in each row. The function receives the other
    columns as keyword arguments and returns the lowered program of the step. Its simulated times
    determine factors of constants: matmul, pointwise, memory, launch, launch.interval, links.NAME
    and links.NAME.latency.
    """
    # For start-up time.
    from shardir.frontend.cli.calibrate import calibrate_local, calibrate_steps, calibrate_table

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
