"""Run the program before and after each pass, and stop at the pass that changed the results.

`Check` observes a pipeline. It runs both modules in the reference interpreter on the same random
arguments (a partitioned one on a simulated mesh) and compares their results. If they differ, it
searches for the first value that does: passes preserve the names of values, so the two programs are
compared value by value, in the order of the new one.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, final

import numpy as np

from shardir.errors import InterpretError, NumbersError
from shardir.interpret.interpreter import evaluate, run, run_devices
from shardir.interpret.machine_limits import check_runnable
from shardir.interpret.numeric_comparison import (
    Array,
    are_close,
    describe_largest_difference,
    describe_type_difference,
    is_stable,
    relative_distance,
    tolerance_of,
)
from shardir.interpret.random_arguments import parameter_types, random_arguments
from shardir.interpret.shards import assemble_shards, slice_shard
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Function, GlobalTensor, Module, Op, Value, spmd_mesh_of
from shardir.passes.pipeline import Pass, verify_result
from shardir.text.printer import Printer, unique_names


@final
class NumericsCheck:
    """Raises `NumbersError` that names the pass, the result, its deviation, and the operation.

    An invalid module is a `PipelineError`.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._last: tuple[Module, list[Array]] | None = None

    def __call__(self, step: Pass, before: Module, after: Module, seconds: float) -> None:
        verify_result(step, before, after, seconds)
        check_runnable(before)
        check_runnable(after)
        if parameter_types(before) != parameter_types(after):
            old, new = (", ".join(map(str, parameter_types(each))) for each in (before, after))
            raise NumbersError(
                f"pass {step.name!r} changed the types of the parameters of @{before.main.name} "
                f"from ({old}) to ({new})"
            )
        arguments = random_arguments(before, self._seed, whole=True)
        want = self._results(before, arguments)
        try:
            got = run(after, arguments)
        except InterpretError as error:
            raise NumbersError(
                f"after pass {step.name!r} @{after.main.name} does not run: {error}"
                f"{_describe_first_difference(before, after, arguments)}"
            ) from error
        if wrong := describe_type_difference(want, got):
            raise NumbersError(f"pass {step.name!r} changed @{after.main.name}: {wrong}")
        tolerance = tolerance_of(before)
        if are_close(want, got, tolerance) or not is_stable(before, arguments, want, tolerance):
            self._last = after, got
            return
        raise NumbersError(
            f"pass {step.name!r} changed the results of @{after.main.name}: "
            f"{_describe_difference(after, want, got, tolerance)}"
            f"{_describe_first_difference(before, after, arguments)}"
        )

    def _results(self, module: Module, arguments: Sequence[Array]) -> list[Array]:
        """Return the results of the module, cached from the preceding pass."""
        if self._last and self._last[0] is module:
            return self._last[1]
        return run(module, arguments)


def _describe_difference(
    module: Module, want: Sequence[Array], got: Sequence[Array], tolerance: float
) -> str:
    """Describe the result with the largest deviation, its index, and its deviation."""
    distances = [relative_distance(a, b, tolerance) for a, b in zip(want, got, strict=True)]
    i = int(np.argmax(distances))
    name = module.main.body.returns[i].name
    return f"result {i} (%{name}) differs {describe_largest_difference(want[i], got[i])}"


def _describe_first_difference(before: Module, after: Module, arguments: Sequence[Array]) -> str:
    """Describe the first operation of the new program whose result differs."""
    value_of_name = {v.name: v for v in before.main.body.values()}
    shared = [
        (value_of_name[v.name], v, op)
        for op in after.main.body.ops
        for v in op.results
        if v.name in value_of_name and _is_comparable(value_of_name[v.name], v, after.main)
    ]
    old = _evaluate_values(before, [a for a, _, _ in shared], [a for a, _, _ in shared], arguments)
    new = _evaluate_values(after, [b for _, b, _ in shared], [a for a, _, _ in shared], arguments)
    tolerance = tolerance_of(before)
    for (_, _, op), a, b in zip(shared, old, new, strict=True):
        if b is None or relative_distance(a, b, tolerance) > 1:
            return (
                f"\nthe first value that differs is the result of\n{_format_operation(op, after)}"
            )
    return ""


def _is_comparable(old: Value, new: Value, function: Function) -> bool:
    """Return whether two values of one name are the same tensor, the new one possibly sharded."""
    sharding = old.sharding
    if sharding is None or function.spmd is None:
        return old.type == new.type
    return sharding.local_shape(old.type.shape) == new.type.shape


def _evaluate_values(
    module: Module,
    values: Sequence[Value],
    global_values: Sequence[Value],
    arguments: Sequence[Array],
) -> list[Any]:
    """Return values of the first function; `None` where replicas on devices differ.

    `global_values` holds the value of the unpartitioned program that each is a shard of.
    """
    function = module.main
    body = Block(function.body.params, function.body.ops, tuple(values))
    if function.spmd is None:
        return list(evaluate(replace(function, body=body), arguments))
    mesh = spmd_mesh_of(module)
    params = function.spmd.params
    shards = [
        [slice_shard(x, g.sharding, mesh, device) for x, g in zip(arguments, params, strict=True)]
        for device in range(mesh.size)
    ]
    per_device = run_devices(replace(function, body=body), mesh, shards)
    return [
        _join_shards([results[i] for results in per_device], value, mesh)
        for i, value in enumerate(global_values)
    ]


def _join_shards(shards: list[Array], value: Value, mesh: Mesh) -> Array | None:
    sharding = value.sharding
    if sharding is None:
        return shards[0]
    outer = GlobalTensor(value.type, sharding)
    try:
        return assemble_shards(shards, outer.type, outer.sharding, mesh)
    except InterpretError:
        return None


def _format_operation(op: Op, module: Module) -> str:
    names = unique_names(module.main)
    return f"  | {Printer(module.meshes, locations=True).op(op, names)}"
