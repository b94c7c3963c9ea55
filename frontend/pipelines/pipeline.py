"""`pipeline`: a loss function that runs in stages over microbatches."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from shardir.display.byte_sizes import parse_bytes
from shardir.errors import count_noun, os_error_reason
from shardir.frontend.argument_checks import (
    check_flag,
    check_integer,
    check_integers,
    check_positional_only,
)
from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.call_signatures import call_user_function
from shardir.frontend.dispatch.jit import jit
from shardir.frontend.dispatch.traced_calls import is_array_like, result_tracer
from shardir.frontend.errors import ArgumentError
from shardir.frontend.lax.sharding_constraints import with_sharding_constraint
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.tree_checks import check_function
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief
from shardir.frontend.shardings.mesh import current_mesh
from shardir.frontend.shardings.partition_spec import PartitionSpec
from shardir.frontend.shardings.sharding import NamedSharding
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import traceback_boundary
from shardir.frontend.tracing.function_tracing import trace_block
from shardir.frontend.tracing.operands import as_tracer
from shardir.frontend.tracing.parameters import Parameters, leaf_labels
from shardir.frontend.tracing.trace import current_trace, emit_results, require_trace, wrap_value
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.wrappers import wraps
from shardir.ir.builder import substitute
from shardir.ir.module import Block, Value
from shardir.ir.operation import Attr
from shardir.ops.control_flow.pipelines import LOSS_REDUCTIONS
from shardir.passes.pipeline_parallelism.actions import PipelineScheduleError
from shardir.passes.pipeline_parallelism.named_schedules import NAMED_SCHEDULES
from shardir.passes.pipeline_parallelism.schedule import PipelineSchedule
from shardir.passes.pipeline_parallelism.schedule_pipelines import SEARCH


@traceback_boundary
def pipeline(
    loss: UserFunction,
    *,
    microbatches: int,
    schedule: str | PathLike[str] | PipelineSchedule = "1f1b",
    axis: str = "pipe",
    batch_argnums: int | Sequence[int] | None = None,
    reduction: str = "mean",
    stages: int | None = None,
    stages_per_rank: int | None = None,
    memory: int | str | None = None,
    has_aux: bool = False,
) -> UserFunction:
    """Return the loss over a batch, computed in the stages of a pipeline.

    `loss(params, *batch)` returns a scalar, and `stage` marks its stages. The arguments in
    `batch_argnums` (default: all but the first) are divided into `microbatches` equal parts along
    their first dimensions; the result is the mean of the losses of all parts, or with
    `reduction="sum"` their sum. `grad` and `value_and_grad` differentiate it with respect to the
    other arguments.

    The devices of the mesh, that of the arguments or of the surrounding `with mesh:`, form one row
    for each index of the mesh axis `axis`, and each row computes one stage or several. `schedule`
    states the order: the name of a schedule, a `PipelineSchedule`, or a path of a CSV file in the
    notation of torch. `stages_per_rank` is the number of stages of each row, for schedules in which
    it is free. With `stages`, a loss without marks is divided into this number of stages of about
    equal cost, where they send few bytes.

    With `has_aux`, `loss` returns `(value, aux)`, and so does the result; each array of `aux` has
    the values of all microbatches along a new first dimension.

    `schedule="search"` finds a schedule in which the devices of a row together keep at most
    `memory` bytes of activations, such as `"64MiB"`, for one stage on each row.
    """
    check_function("pipeline", loss)
    attrs: dict[str, Attr] = {
        "microbatches": check_integer("microbatches of pipeline", microbatches, least=1),
        **_schedule_attributes(schedule),
        "axis": axis,
    }
    if reduction not in LOSS_REDUCTIONS:
        raise ArgumentError(
            with_location(
                f"reduction of pipeline is one of {', '.join(LOSS_REDUCTIONS)}, "
                f"got {brief(reduction)}"
            )
        )
    if reduction != "mean":
        attrs["reduction"] = reduction
    if stages is not None:
        attrs["stages"] = check_integer("stages of pipeline", stages, least=1)
    if stages_per_rank is not None:
        attrs["stages_per_rank"] = check_integer(
            "stages_per_rank of pipeline", stages_per_rank, least=1
        )
    if (memory is not None) != (schedule == SEARCH):
        raise ArgumentError(
            with_location(
                "schedule='search' of pipeline needs memory=, the bytes of activations that a row "
                "of devices may keep"
                if memory is None
                else "memory of pipeline limits a schedule that is searched; add schedule='search'"
            )
        )
    if memory is not None:
        attrs["memory"] = parse_bytes(memory)
    has_aux = check_flag("has_aux of pipeline", has_aux)
    known = Parameters.of(loss, ())
    numbers = (batch_argnums,) if isinstance(batch_argnums, int) else batch_argnums
    chosen = None if numbers is None else check_integers("batch_argnums of pipeline", numbers)

    @traceback_boundary
    @wraps(loss)
    def wrapper(*args: PyTree, **options: PyTree) -> Any:
        check_positional_only(f"pipeline of {known.name} has batch_argnums", options)
        if current_trace() is None:
            return alone(*args)
        return _trace_pipeline(loss, known, attrs, args, chosen, has_aux)

    alone = jit(wrapper)
    return wrapper


def _schedule_attributes(schedule: str | PathLike[str] | PipelineSchedule) -> dict[str, Attr]:
    """Return the name of a schedule, or its text as CSV, and its file if it has one."""
    if isinstance(schedule, PipelineSchedule):
        return {"schedule": schedule.to_csv()}
    text = str(schedule)
    if text in NAMED_SCHEDULES or text == SEARCH:
        return {"schedule": text}
    if text.endswith(".csv"):
        try:
            rows = PipelineSchedule.parse(Path(text).read_text("utf-8"))
            return {"schedule": rows.to_csv(), "schedule_file": text}
        except PipelineScheduleError as error:
            raise PipelineScheduleError(with_location(f"{text}: {error}")) from None
        except (OSError, ValueError) as error:  # ValueError: the file is not UTF-8.
            reason = os_error_reason(error)
            raise ArgumentError(
                with_location(
                    f"schedule of pipeline is {brief(text)}, which cannot be read: {reason}"
                )
            ) from None
    raise ArgumentError(
        with_location(
            f"schedule of pipeline is {brief(schedule)}; use one of {', '.join(NAMED_SCHEDULES)}, "
            "search, or the path of a .csv file"
        )
    )


def _trace_pipeline(
    loss: UserFunction,
    known: Parameters,
    attrs: dict[str, Attr],
    args: tuple[PyTree, ...],
    batch_argnums: Sequence[int] | None,
    has_aux: bool,
) -> Any:
    batch = _batch_positions(args, batch_argnums, known.name)
    leaves, structure = tree.flatten(args)
    labels = [label for i, arg in enumerate(args) for label in leaf_labels(known.label(i), arg)]
    owners = [i for i, arg in enumerate(args) for _ in tree.leaves(arg)]
    chosen = [i for i, leaf in enumerate(leaves) if is_array_like(leaf)]
    names = [labels[i] for i in chosen]
    tracers = [as_tracer(leaves[i]) for i in chosen]
    batched = tuple(n for n, i in enumerate(chosen) if owners[i] in batch)
    abstracts = [tracer.abstract for tracer in tracers]
    for n in batched:
        abstracts[n] = _abstract_microbatch(abstracts[n], attrs["microbatches"], names[n])
    returned_structure: list[tree.PyTreeDef] = []

    def flat(*inner: Tracer) -> list[Tracer]:
        filled = list(leaves)
        for i, tracer in zip(chosen, inner, strict=True):
            filled[i] = tracer
        returned = call_user_function(loss, known.name, tree.unflatten(structure, filled), {})
        made, results = _check_loss(returned, known.name, has_aux)
        returned_structure.append(results)
        return made

    block, results = trace_block(flat, abstracts, known.name, names)
    block, captured = _lift_captures(block)
    operands = [*tracers, *map(wrap_value, captured)]
    weak = all(each.weak for each in results)
    value, *auxiliary = emit_results(
        "pipeline", *operands, blocks=(block,), batched=batched, weak=weak, **attrs
    )
    mesh = current_mesh()
    if mesh is not None and attrs["axis"] in mesh.shape:
        # The rows are those of the entered mesh, also if no argument has a sharding.
        value = with_sharding_constraint(value, NamedSharding(mesh, PartitionSpec()))
    return tree.unflatten(returned_structure[0], [value, *auxiliary])


def _batch_positions(
    args: tuple[PyTree, ...], batch_argnums: Sequence[int] | None, name: str
) -> set[int]:
    """Return the positions of the arguments whose first dimension is the batch."""
    numbers = range(1, len(args)) if batch_argnums is None else batch_argnums
    for i in numbers:
        if not -len(args) <= i < len(args):
            raise ArgumentError(
                with_location(
                    f"batch_argnums of pipeline contains {i}, and {name} is called with "
                    f"{count_noun(len(args), 'argument')}"
                )
            )
    return {i % len(args) for i in numbers}


def _abstract_microbatch(abstract: AbstractValue, count: int, label: str) -> AbstractValue:
    """Return one of `count` microbatches of an argument."""
    type = abstract.type
    if not type.shape or type.shape[0] % count:
        raise ArgumentError(
            with_location(
                f"{label} of pipeline is {type}, which does not divide into {count} microbatches; "
                f"the first dimension must be a multiple of {count}"
            )
        )
    part = type.with_shape((type.shape[0] // count, *type.shape[1:]))
    return AbstractValue(part, abstract.weak)


def _check_loss(returned: PyTree, name: str, has_aux: bool) -> tuple[list[Tracer], tree.PyTreeDef]:
    """Return the results of a loss and their structure; raise if they are no scalar loss."""
    if has_aux and not (isinstance(returned, tuple) and len(returned) == 2):
        raise ArgumentError(
            with_location(
                f"{name} has has_aux=True, so it must return (value, aux); it returned "
                f"{brief(returned)}"
            )
        )
    out, results = tree.flatten(returned)
    made = [result_tracer(x, i, results, name) for i, x in enumerate(out)]
    count = len(tree.leaves(returned[0])) if has_aux else len(made)
    if count != 1 or made[0].shape:
        shapes = ", ".join(str(x.abstract.type) for x in made[:count])
        more = "; return (value, aux) with has_aux=True" if count > 1 and not has_aux else ""
        raise ArgumentError(
            with_location(f"{name} returns ({shapes}), and pipeline takes a scalar loss{more}")
        )
    return made, results


def _lift_captures(block: Block) -> tuple[Block, tuple[Value, ...]]:
    """Return the block with parameters for the values that it captures, and these values."""
    # A transformation inside of the loss refers to values by their final names, which are other
    # values than the parameters.
    block = substitute(block, require_trace("pipeline").program.unnamed_values)
    captured = block.captures()
    new = {value: Value(value.type, "", value.sharding) for value in captured}
    inner = substitute(block, new)
    return Block((*block.params, *new.values()), inner.ops, inner.returns), captured
