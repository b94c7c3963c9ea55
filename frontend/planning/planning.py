"""`plan`: find shardings of the arguments of a function on a mesh."""

from collections.abc import Callable, Sequence
from numbers import Integral

from shardir.frontend.arrays.signature import ShapeDtypeStruct
from shardir.frontend.dispatch.jit import jit
from shardir.frontend.dispatch.jit_function import JitFunction
from shardir.frontend.dispatch.programs.donation import reusable_parameters
from shardir.frontend.dispatch.programs.runnable import default_pipeline
from shardir.frontend.dispatch.stages.stages import Lowered
from shardir.frontend.dispatch.stages.step_simulation import MachineLike, resolve_machine
from shardir.frontend.dispatch.traced_calls import check_traceable
from shardir.frontend.errors import ArgumentError
from shardir.frontend.planning import plan_text as plan_text  # Registers the text of plans.
from shardir.frontend.planning.pipeline_evaluator import evaluator_of
from shardir.frontend.planning.plan import Plan
from shardir.frontend.planning.request import (
    check_stated_axes,
    memory_limit,
    planned_mesh,
    stated_axes,
)
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief
from shardir.frontend.shardings.mesh import AbstractMesh, Mesh
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import traceback_boundary
from shardir.ir.mesh import Mesh as MeshAxes
from shardir.machine import Machine
from shardir.passes.planning.programs.assignment import DimAxes
from shardir.passes.planning.programs.plan_program import plan_program
from shardir.passes.planning.programs.planning_request import (
    MAX_EVALUATIONS,
    PlanningRequest,
    pads_arguments,
)
from shardir.passes.simulation import MachineModel

Progress = Callable[[int, int], None]
"""A function that is called after each evaluation, with the number of evaluations and the largest
number."""


@traceback_boundary
def plan(
    fun: UserFunction,
    args: Sequence[PyTree],
    mesh: Mesh,
    machine: MachineLike | None = None,
    memory: int | str | None = None,
    *,
    batch: str | int | Sequence[str | int] | None = None,
    keep: bool = False,
    evaluations: int = MAX_EVALUATIONS,
    progress: Progress | None = None,
) -> Plan:
    """Return a plan: shardings of the arguments `args` of `fun` on a mesh, for `jit`.

    The search partitions the program for each candidate, with the passes that `jit` runs, and
    minimizes the predicted time of one run on `machine` (a name, a path or the result of
    `shardir.machine.load_machine`). Without a machine it divides the arithmetic of matrix products
    over the devices as far as possible, and then minimizes the bytes that each device sends.

    `memory` limits the bytes of each device, such as `"80GiB"`; by default the capacity of the
    machine. `batch` are the names or indices of the arguments whose first dimension is the batch;
    by default those that are not the state of a step, which are the arguments whose next value
    `fun` returns. It determines the data-parallel plan, with which the search begins and with which
    `compare` compares. `keep` respects the shardings that `args` have; otherwise they are one more
    plan to compare with. `evaluations` limits the number of candidates; those with constraints of
    values inside of `fun` may be one eighth more.

    Raises `PlanningError` if no plan fits into the memory.
    """
    _check_plan_arguments(args, mesh, evaluations, progress)
    given = tree.leaves(tuple(args))
    function = fun if isinstance(fun, JitFunction) else jit(check_traceable(fun, "plan"))
    lowered = _lower_unsharded(function, args)
    module = lowered.module
    found = None if machine is None else resolve_machine(machine, dict(mesh.shape), None, "plan")
    ir_mesh = planned_mesh(module, mesh, "plan")
    limit = memory_limit(memory, found)
    count = lowered.in_tree.num_leaves
    others = len(module.main.body.params) - count
    stated = [_stated_axes(leaf, mesh) for leaf in given]
    pipeline = default_pipeline(lowered._plan)
    check_stated_axes(stated, module, ir_mesh, "plan", pads=pads_arguments(pipeline))
    fixed = (*(stated if keep else [None] * count), *[None] * others)
    annotated = None
    if any(each is not None for each in stated):
        annotated = (
            *(
                each if each is not None else tuple(() for _ in param.type.shape)
                for each, param in zip(stated, module.main.body.params, strict=False)
            ),
            *[None] * others,
        )
    request = PlanningRequest(
        module,
        ir_mesh,
        pipeline,
        found,
        limit,
        None if batch is None else _batch_numbers(batch, lowered, args),
        fixed,
        annotated,
        reusable_parameters(
            lowered.donated, module.main, [value.type for value in module.main.body.returns]
        ),
        max_evaluations=int(evaluations),
        count=count,
        machine_of=_machine_resolver(machine),
        evaluator=evaluator_of(module),
    )
    notify = None if progress is None else (lambda done, best: progress(done, evaluations))
    chosen = plan_program(request, notify)
    return Plan(chosen, lowered, _with_axes(mesh, chosen.request.mesh), function)


def _check_plan_arguments(
    args: object, mesh: object, evaluations: object, progress: object
) -> None:
    if not isinstance(mesh, Mesh):
        raise ArgumentError(
            with_location(f"the mesh of plan is {brief(mesh)}, which is not a mesh")
        )
    if mesh.size == 1:
        raise ArgumentError(
            with_location("the mesh of plan has one device, so that there is nothing to shard")
        )
    if not isinstance(args, (tuple, list)):
        raise ArgumentError(
            with_location(f"args of plan are a tuple of arguments, not {brief(args)}; write (x,)")
        )
    if progress is not None and not callable(progress):
        raise ArgumentError(
            with_location(f"progress of plan is {brief(progress)}; use a function or None")
        )
    if isinstance(evaluations, bool) or not isinstance(evaluations, Integral) or evaluations < 1:
        raise ArgumentError(
            with_location(f"evaluations of plan is {brief(evaluations)}; use a positive integer")
        )


def _machine_resolver(
    machine: MachineLike | None,
) -> Callable[[MeshAxes], MachineModel | None] | None:
    """Return the function that returns the machine for a mesh with parts of axes; `None` for a
    machine that was loaded for the axes of one mesh."""
    if isinstance(machine, Machine):
        return None
    return lambda mesh: (
        None if machine is None else resolve_machine(machine, mesh.sizes, None, "plan")
    )


def _with_axes(mesh: Mesh, axes: MeshAxes) -> Mesh:
    """Return the mesh of the same devices with other axes, which have the type Auto."""
    if dict(axes.axes) == dict(mesh.shape):
        return mesh
    sizes, names = tuple(axes.sizes.values()), tuple(axes.sizes)
    if isinstance(mesh, AbstractMesh):
        return AbstractMesh(sizes, names)
    return Mesh(mesh.devices.reshape(sizes), names)


def _lower_unsharded(function: JitFunction, args: Sequence[PyTree]) -> Lowered:
    """Trace a function for arguments without shardings."""
    lowered: Lowered = function.with_shardings(None, None).lower(
        *tree.map(_remove_sharding, tuple(args))
    )
    return lowered


def _remove_sharding(leaf: object) -> object:
    """Return the struct of an array without its sharding; other arguments unchanged."""
    if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
        return leaf
    weak = bool(getattr(leaf, "weak_type", False))
    return ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=weak)


def _stated_axes(leaf: PyTree, mesh: Mesh) -> DimAxes | None:
    """Return the axes of each dimension by the sharding of an argument, `None` without one."""
    sharding = getattr(leaf, "sharding", None) if getattr(leaf, "committed", True) else None
    return None if sharding is None else stated_axes(sharding, len(leaf.shape), mesh, "plan")


def _batch_numbers(
    batch: str | int | Sequence[str | int], lowered: Lowered, args: Sequence[PyTree]
) -> tuple[int, ...]:
    """Return the indices of the parameters in the arguments that `batch` states."""
    if not isinstance(batch, (str, int, list, tuple, set, frozenset)):
        raise ArgumentError(
            with_location(
                f"batch of plan is {brief(batch)}; use the names or numbers of arguments, such as "
                '("x", "y")'
            )
        )
    items = [batch] if isinstance(batch, (str, int)) else list(batch)
    sizes = [len(tree.leaves(each)) for each in args]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    params = lowered.module.main.body.params
    names = [params[start].name.partition(".")[0] if size else "" for start, size in zip(
        starts, sizes, strict=True)]  # fmt: skip
    numbers: list[int] = []
    for item in items:
        if isinstance(item, int) and not isinstance(item, bool) and -len(args) <= item < len(args):
            position = item % len(args)
        elif isinstance(item, str) and item in names:
            position = names.index(item)
        else:
            known = ", ".join(name for name in names if name)
            raise ArgumentError(
                with_location(
                    f"batch of plan has {item!r}, which is not an argument of "
                    f"{lowered.module.main.name}; its arguments are {known}"
                )
            )
        numbers += range(starts[position], starts[position] + sizes[position])
    return tuple(number for number in numbers if params[number].type.rank)
