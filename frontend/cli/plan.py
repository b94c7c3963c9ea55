"""`shardir plan` finds shardings of the arguments of a function."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from shardir.frontend.cli.options import CommandError, PlanFormat
from shardir.frontend.cli.program_reports import check_page
from shardir.frontend.cli.targets import load_function
from shardir.frontend.planning.plan import Plan
from shardir.frontend.planning.plan_comparisons import PlanComparison
from shardir.frontend.planning.planning import Progress as Notify, plan as make_plan
from shardir.frontend.pytree import tree
from shardir.passes.planning.problem import PlanningError

AXIS_NAMES = {1: ("data",), 2: ("data", "model")}
"""The names of the axes of a mesh that is given by its sizes; those of a larger one are x, y, z."""

_SIZES = re.compile(r"\d+(x\d+)*")


def plan_function(
    function: str,
    mesh: str | None,
    devices: int | None,
    machine: str | None,
    memory: str | None,
    batch: list[str] | None,
    keep: bool,
    args: str | None,
    specs: str | None,
    evaluations: int,
    why_not: list[str] | None,
    pareto: bool,
    bound: bool,
    export: PlanFormat | None,
    html: str | None,
) -> None:
    """Print a plan of a function, or of several meshes."""
    if mesh is not None and devices is not None:
        raise CommandError("--mesh and --devices exclude each other; --devices tries meshes")
    if mesh is None and devices is None:
        raise CommandError("name the mesh with --mesh, or the number of devices with --devices")
    meshes = [name_axes(mesh)] if mesh is not None else meshes_of(devices or 0)
    if export is not None and (pareto or bound or why_not):
        raise CommandError(
            "--export prints a program or code only; use --pareto, --bound and --why-not without it"
        )
    if html is not None:
        check_page(html)
    with _progress_bar() as notify:
        make = partial(
            make_plan, machine=machine, memory=memory, batch=batch, keep=keep,
            evaluations=evaluations, progress=notify,
        )  # fmt: skip
        plans, failures = _plan_meshes(make, function, meshes, args, specs, keep)
    if not plans:
        raise CommandError("no mesh has a plan\n" + "\n".join(failures))
    best = min(plans.values(), key=lambda each: each.evaluation.key(each.memory_limit))
    if html is not None:
        typer.echo(best.report().save(html), err=True)
    if export is not None:
        typer.echo(_export(best, export), nl=False)
        return
    if len(plans) > 1:
        ranked = sorted(
            plans.items(), key=lambda each: each[1].evaluation.key(each[1].memory_limit)
        )
        typer.echo(f"{PlanComparison({name: each.evaluation for name, each in ranked})}\n")
    typer.echo(best)
    for failure in failures:
        typer.echo(f"\n{failure}")
    # Each report is printed before the next one, which may take long, or raise an error.
    if bound:
        typer.echo(f"\n{best.lower_bound()}")
    if pareto:
        typer.echo(f"\n{best.pareto()}")
    for annotation in why_not or ():
        typer.echo(f"\n{best.why_not(annotation)}")


def _plan_meshes(
    make: Callable[..., Plan],
    function: str,
    meshes: Sequence[str],
    args: str | None,
    specs: str | None,
    keep: bool,
) -> tuple[dict[str, Plan], list[str]]:
    """Return the plan for each mesh that has one, and the reasons why others have none; raise the
    reason if it is the only mesh."""
    plans: dict[str, Plan] = {}
    failures: list[str] = []
    for mesh in meshes:
        with ExitStack() as stack:
            fun, given, abstract = load_function(stack, function, mesh, args, specs)
            if keep and not any(map(_has_sharding, tree.leaves(given))):
                raise CommandError(
                    "--keep keeps the shardings of arguments, and none has a sharding; state "
                    "shardings with --specs"
                )
            try:
                plans[mesh] = make(fun, given, abstract)
            except PlanningError as error:
                failures.append(f"{mesh}: {error}")
                if len(meshes) == 1:
                    raise
            del fun, given
    return plans, failures


def name_axes(mesh: str) -> str:
    """Return a mesh with names of its axes: `data=16,model=16` for `16x16`."""
    if not _SIZES.fullmatch(mesh):
        return mesh
    sizes = mesh.split("x")
    names = AXIS_NAMES.get(len(sizes)) or tuple("xyzuvw"[: len(sizes)])
    if len(names) < len(sizes):
        raise CommandError(f"{mesh!r} has more than 6 axes; name them as data=16,model=16")
    return ",".join(f"{name}={size}" for name, size in zip(names, sizes, strict=True))


def meshes_of(devices: int) -> list[str]:
    """Return the meshes of a number of devices with the axes data and model."""
    sizes = [size for size in range(1, devices + 1) if devices % size == 0]
    return [f"data={devices // size},model={size}" for size in sizes]


def _has_sharding(leaf: object) -> bool:
    return getattr(leaf, "sharding", None) is not None


def _export(plan: Plan, form: PlanFormat) -> str:
    if form is PlanFormat.jax:
        return plan.as_jax()
    return plan.as_ir() if form is PlanFormat.ir else plan.as_sdy()


@contextmanager
def _progress_bar() -> Iterator[Notify | None]:
    """Show the number of evaluated candidates, if standard error is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=console
    ) as bar:
        task = bar.add_task("planning")

        def notify(done: int, most: int) -> None:
            bar.update(task, completed=done, total=most, description=f"{done} candidates")

        yield notify
