"""Commands that transform, run, draw, emit and test programs."""

from pathlib import Path
from typing import Annotated

import typer

from shardir.frontend.cli.commands.declaration import (
    PassPipeline,
    command,
    complete_pass,
    complete_pipeline,
    complete_target,
)
from shardir.frontend.cli.options import (
    Arguments,
    FileOrFunction,
    MeshSizes,
    ModuleFormat,
    RuleTexts,
    Seed,
    Specs,
)


@command(
    "opt",
    "opt:run_passes",
    examples=(
        "shardir opt mlp.ir --passes propagate",
        'shardir opt mlp.ir --passes "propagate,reshard,partition" --verify',
        "shardir opt mymodule:train_step --mesh data=4,model=2 --passes propagate",
        "shardir opt mlp.ir --diff reshard",
        "shardir opt mlp.ir --diff propagate..partition",
        "shardir opt mlp.ir --dump-dir stages/",
        "shardir opt mlp.ir --passes propagate --to stablehlo",
        "shardir opt mlp.mlir --passes propagate",
        'shardir opt mlp.mlir --passes propagate --rule "my_op: i j, j k -> i k reduction={j}"',
        "cat mlp.ir | shardir opt - --passes cse,dce --locations",
    ),
)
def opt(
    file: FileOrFunction = "-",
    passes: Annotated[
        str | None,
        typer.Option(
            help="pass pipeline, such as default,overlap; `none` only verifies and prints "
            "(default: for a function the pipeline of jit, for a file the default pipeline)",
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
    diff: Annotated[
        list[str] | None,
        typer.Option(
            help="print what a pass changes instead of the result, as a unified diff; or the "
            "difference between the programs after two passes: propagate..partition",
            autocompletion=complete_pass,
        ),
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


@command(
    "passes",
    "passes:list_passes",
    examples=(
        "shardir passes",
        "shardir passes reshard",
    ),
)
def passes(
    name: Annotated[
        str | None,
        typer.Argument(
            help="pass to describe with all options (default: list all passes)",
            autocompletion=complete_pass,
        ),
    ] = None,
) -> None:
    """List passes and their options, or describe one pass."""


@command(
    "run",
    "run:run_program",
    examples=(
        "shardir run mlp.ir",
        "shardir run mlp.ir x.npy w1.npy b1.npy w2.npy b2.npy --save out/",
        "shardir run mymodule:train_step --mesh data=4,model=2",
        'shardir run mlp.ir --seed 7 --passes "propagate,reshard,partition"',
    ),
)
def run(
    file: FileOrFunction,
    inputs: Annotated[
        list[Path] | None,
        typer.Argument(
            help="one .npy file per argument (default: the arrays of example_args, or random ones)"
        ),
    ] = None,
    passes: PassPipeline = None,
    seed: Seed = 0,
    save: Annotated[
        Path | None, typer.Option(help="folder that receives the results as .npy files")
    ] = None,
    mesh: MeshSizes = None,
    args: Arguments = None,
    specs: Specs = None,
) -> None:
    """Run a program and print its results.

    The program runs on all devices of its mesh. The command also prints the shardings of the
    results.
    """


@command(
    "emit",
    "emit:emit_program",
    examples=(
        "shardir emit mlp.ir --target gpu -o mlp/",
        "shardir emit mymodule:train_step --mesh data=4,model=2 --target gpu -o step/ --selftest",
        "shardir emit mlp.ir --target gpu -o mlp/ --passes default,overlap",
        "shardir opt mlp.ir | shardir emit - --target ipu -o mlp/",
    ),
)
def emit(
    file: FileOrFunction,
    target: Annotated[
        str,
        typer.Option(help="target: gpu, ipu or that of a plugin", autocompletion=complete_target),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="folder that receives the files")],
    mesh: MeshSizes = None,
    passes: PassPipeline = None,
    args: Arguments = None,
    specs: Specs = None,
    selftest: Annotated[
        bool,
        typer.Option("--selftest", help="also write random arguments and the expected results"),
    ] = False,
    seed: Seed = 0,
    selftest_seconds: Annotated[
        float | None,
        typer.Option(help="time limit in seconds for the results of the self-test (default: 60)"),
    ] = None,
    inputs: Annotated[
        list[Path] | None,
        typer.Option("--input", help="one .npy file per argument of the self-test, in order"),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="option of the target, as name=value")
    ] = None,
) -> None:
    """Write a program as source text for a target.

    The command prints the names of the files.
    """


@command(
    "draw",
    "draw:draw_program",
    examples=(
        "shardir draw mlp.ir > mlp.dot",
        "shardir draw mymodule:train_step --mesh data=4 --passes default -o step.svg",
    ),
)
def draw(
    file: FileOrFunction,
    mesh: MeshSizes = None,
    args: Arguments = None,
    specs: Specs = None,
    passes: Annotated[
        str | None,
        typer.Option(
            help="pass pipeline to run before drawing (default: none)",
            autocompletion=complete_pipeline,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help=".dot or .svg file that receives the graph (default: print DOT)"
        ),
    ] = None,
) -> None:
    """Draw the first function of a program.

    Boxes show operations, and edges show values. SVG requires Graphviz.
    """


@command(
    "test",
    "story_tests:check_stories",
    examples=(
        "shardir test stories/mlp.ir",
        "shardir test stories/",
        "shardir test stories/ --update",
        "shardir test mymodule:train_step --mesh data=4,model=2",
    ),
)
def check_stories(
    path: Annotated[
        str, typer.Argument(help="story file, folder of story files, or module:function")
    ],
    update: Annotated[
        bool,
        typer.Option("--update", help="rewrite the stories with the results of their pipelines"),
    ] = False,
    passes: Annotated[
        str | None,
        typer.Option(
            help="pass pipeline for module:function, such as default,overlap",
            autocompletion=complete_pipeline,
        ),
    ] = None,
    mesh: MeshSizes = None,
    args: Arguments = None,
    specs: Specs = None,
) -> None:
    """Check story files, or the results of a function.

    A story file is IR text with headings. A heading such as // ===== propagate names a pipeline,
    which turns the program above the heading into the program below it. The command checks this,
    and that all programs of the file have equal results.

    For a function, the command checks that its program on the devices of the mesh has the same
    results as the unsharded program. The arguments are the arrays of example_args, or random.
    """
