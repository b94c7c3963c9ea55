"""A compiled program together with the shardings of its arguments and results.

Everything that a call needs is computed in advance: how to shard an uncommitted argument, and the
signature of each result.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, final

import numpy as np

from shardir._imports.lazy_import import lazy_import
from shardir.backends.base import (
    Executable,
    InputCheck,
    Launch,
    Shards,
    Storage,
    UnshardedExecutable,
)
from shardir.backends.device_shards import DeviceExecutable, DeviceShards
from shardir.cost.memory import MemoryEstimate
from shardir.display.compilation_progress import report_compilation_of
from shardir.errors import PipelineError
from shardir.frontend.argument_errors import locate_errors
from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.arrays.array import Array
from shardir.frontend.arrays.jax_keys import jax_key_storage
from shardir.frontend.arrays.numpy_conversion import is_number, narrow_array
from shardir.frontend.arrays.shard_buffers import (
    Buffer,
    pad_to_shards,
    padded_shape,
    split_into_shards,
)
from shardir.frontend.arrays.signature import ShapeDtypeStruct, signature_of
from shardir.frontend.config import config
from shardir.frontend.dispatch.programs import view_launch
from shardir.frontend.dispatch.programs.compilation import backend_pipeline, compile_module
from shardir.frontend.dispatch.programs.donation import reusable_parameters
from shardir.frontend.dispatch.programs.pass_observers import (
    progress_observer,
    settings_observer,
    sharding_observer,
)
from shardir.frontend.distributed.processes import process_index
from shardir.frontend.distributed.replicated_inputs import ReplicatedInputs, participating_processes
from shardir.frontend.errors import NotAnArrayError, NumberRangeError
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.setting_values import WIDE_FLOATS
from shardir.frontend.shardings.devices import abstract_device_error, is_abstract_assignment
from shardir.frontend.shardings.sharding import Sharding
from shardir.frontend.shardings.sharding_checks import check_holds_partial_sums, is_resolved
from shardir.frontend.source_locations import with_location
from shardir.ir.module import Module
from shardir.ir.types import TensorType
from shardir.ops.control_flow.pipelines import pipeline
from shardir.passes.collectives.widen_reductions import widen_gradient_sums
from shardir.passes.interface_check import check_interface
from shardir.passes.pass_aliases import current_name
from shardir.passes.pipeline import (
    DEFAULT_PIPELINE,
    PASSES,
    SHARDY_PIPELINE,
    STAGING_PIPELINE,
    Pipeline,
    combine_observers,
)
from shardir.text.printer import print_module

if TYPE_CHECKING:
    from shardir.frontend.dispatch.programs import nonfinite_check
    from shardir.frontend.dispatch.programs.lowering import LoweredProgram
    from shardir.frontend.pipelines import pipeline_compilation
else:
    pipeline_compilation = lazy_import("shardir.frontend.pipelines.pipeline_compilation")
    nonfinite_check = lazy_import("shardir.frontend.dispatch.programs.nonfinite_check")


def default_pipeline(plan: "LoweredProgram | None" = None) -> Pipeline:
    """Return the default passes with the options of `plan`."""
    exact = config.shardy_exact if plan is None else plan.shardy_exact
    text = SHARDY_PIPELINE if exact else DEFAULT_PIPELINE
    if plan is not None and _has_pipelines(plan):
        # The compiled program calls the runtime of pipelines instead.
        text = f"{STAGING_PIPELINE},inline-pipelines,{text}"
    steps = Pipeline.parse(text)
    if plan is None:
        return steps if config.passes is None else Pipeline.parse(config.passes, steps)
    if plan.passes is not None:
        steps = Pipeline.parse(plan.passes, steps)
    if plan.grad_reduce_dtype is not None:
        steps = widen_gradient_sums(steps, WIDE_FLOATS[plan.grad_reduce_dtype])
    options: dict[str, dict[str, str]] = {"reshard": {"on_fallback": plan.on_fallback}}
    if plan.uneven == "pad" or plan.has_uneven_arguments:
        options["propagate"] = {"border": "uneven" if plan.uneven == "pad" else "stated"}
    if plan.uneven not in (None, "pad"):
        options["reshard"]["uneven"] = str(plan.uneven)
    chosen = [replace(step, **options.get(step.name, {})) for step in steps.passes]
    return Pipeline(tuple(chosen))


def _has_pipelines(plan: "LoweredProgram") -> bool:
    return any(op.spec is pipeline for op in plan.module.main.body.walk())


def _compile_pipelines(plan: "LoweredProgram") -> Module:
    """Return the lowered module with calls of compiled pipelines."""
    if not _has_pipelines(plan):
        return plan.module
    return pipeline_compilation.compile_pipelines(plan.module, plan.devices)


class AbstractExecutable(Executable):
    """The executable of a program on abstract devices, which raises an error when it is called."""

    def __init__(self, name: str, devices: int) -> None:
        self.name, self.devices = name, devices

    def __call__(self, args: Sequence[Shards]) -> list[list[Buffer]]:
        raise abstract_device_error(f"{self.name} was compiled for", self.devices)


@final
class Runnable:
    """A compiled program that is called with arrays, one for each visible parameter."""

    def __init__(
        self, plan: "LoweredProgram", abstracts: Sequence[AbstractValue], captured: Sequence[Array]
    ) -> None:
        """Compile `plan`; `abstracts` are its results, `captured` its last arguments."""
        self.plan = plan
        self.is_abstract = is_abstract_assignment(plan.devices)
        self._whole_executable: UnshardedExecutable | None = None
        self._device_executable: DeviceExecutable | None = None
        with report_compilation_of(plan.module.main.name):
            self._compile(plan)
        main, spmd = self.module.main, self.module.main.spmd
        types = [v.type for v in plan.module.main.body.params]
        inner = [None] * len(types) if spmd is None else [g.sharding for g in spmd.params]
        self.params: list[Sharding] = [
            given if given is not None else plan.to_user_sharding(sharding, type.rank)
            for given, sharding, type in zip(plan.params, inner, types, strict=True)
        ]
        outer = [None] * len(abstracts) if spmd is None else [g.sharding for g in spmd.results]
        self.results: list[Sharding] = [
            given
            if given is not None and is_resolved(given, abstract.type.rank)
            else plan.to_user_sharding(sharding, abstract.type.rank)
            for given, sharding, abstract in zip(plan.results, outer, abstracts, strict=True)
        ]
        for what, shardings in (("arguments", self.params), ("results", self.results)):
            for sharding in shardings:
                check_holds_partial_sums(sharding, f"{plan.module.main.name} has {what}")
        self._result_signatures = [
            (signature_of(abstract, sharding if plan.has_user_shardings else None), sharding)
            for abstract, sharding in zip(abstracts, self.results, strict=True)
        ]
        self._types = [type.numpy for type in types]
        self._names = [v.name for v in main.body.params]
        self._is_single_device = (
            len(plan.devices) == 1 and plan.devices[0].process_index == process_index()
        )
        self.donated: Sequence[int] = ()
        """The arguments whose memory a call may reuse."""
        self._inputs: ReplicatedInputs | None = None
        """The replicated inputs that processes compare; `None` if they need not be compared."""
        if processes := participating_processes(plan.devices):
            self._inputs = ReplicatedInputs(
                plan.module.main.name, self._names, types, self._local_elements, processes
            )
        self._checks_inputs = config.check_replicated_inputs
        self._compared_captures = captured if self._inputs is not None else ()
        self._captured: list[Sequence[Buffer]] = []
        self._captured_storage: list[Storage] = []
        has_checks = config.debug_nans or config.debug_infs
        self._number_checks = nonfinite_check.active_checks() if has_checks else ()
        self._checked_captures = captured if has_checks else ()
        self.launch: Launch | None = None
        """The native launch, for arrays that need no conversion or resharding."""
        self.results_are_views = False
        """True if results are views of arguments."""
        if self._whole_executable is not None:
            self._prepare_launch(self._whole_executable, types, captured)
        elif not self.is_abstract:
            self._captured = [
                self._shard_executable.arrange_argument(i, self._argument_shards(array, i))
                for i, array in enumerate(captured, len(types) - len(captured))
            ]

    def _prepare_launch(
        self,
        executable: UnshardedExecutable,
        types: Sequence[TensorType],
        captured: Sequence[Array],
    ) -> None:
        """Store the elements of captured arrays, and create the launch if no argument is padded."""
        visible = len(types) - len(captured)
        self._padded_shapes: list[tuple[int, ...]] = [
            padded_shape(type.shape, sharding)
            for type, sharding in zip(types, self.params, strict=True)
        ]
        self._captured_storage = [
            self._argument_storage(array, i, []) for i, array in enumerate(captured, visible)
        ]
        if self._padded_shapes[:visible] != [type.shape for type in types[:visible]]:
            return
        launch = None
        if not captured:
            launch = view_launch.view_launch(self.plan.module.main, self._result_signatures)
        self.results_are_views = launch is not None
        # Without a launch, no call cache repeats calls without this object.
        if not self._number_checks:
            self.launch = launch or executable.launcher(
                Array, self._result_signatures, self._captured_storage
            )

    def donate(self, numbers: Sequence[int]) -> None:
        """Let results reuse the memory of these arguments where possible."""
        results = [value.type for value in self.plan.module.main.body.returns]
        numbers = reusable_parameters(numbers, self.plan.module.main, results)
        self.donated = numbers
        if self._whole_executable is None:
            self._shard_executable.donate(numbers)
        if (
            self.launch is not None
            and self._whole_executable is not None
            and not self.results_are_views
        ):
            self.launch = self._whole_executable.launcher(
                Array, self._result_signatures, self._captured_storage, numbers
            )

    def _compile(self, plan: "LoweredProgram") -> None:
        steps = default_pipeline(plan)
        watching = (
            check_interface if PASSES.has_extensions else None,
            settings_observer(plan.module.main.name),
            sharding_observer(plan),
            progress_observer(steps),
        )
        chosen = combine_observers(*(watch for watch in watching if watch is not None))
        self.module: Module = steps(_compile_pipelines(plan), chosen)
        if self.module.meshes and self.module.main.spmd is None:
            raise PipelineError(
                f"the pipeline {plan.passes!r} leaves {plan.module.main.name} unpartitioned; "
                "extend the default pipeline (default,PASS), or add the pass partition"
            )
        sizes = [axis for mesh in self.module.meshes for axis in mesh.axes]
        added = [name for name, size in sizes if size > 1 and name not in dict(plan.axes)]
        if added:
            raise PipelineError(
                f"the pipeline {plan.passes!r} leaves {plan.module.main.name} with the axis "
                f"{added[0]!r}, along which there are no devices; append the pass that removes it, "
                "such as accumulate-microbatches after split-batch"
            )
        if self.is_abstract:
            self._shard_executable: Executable = AbstractExecutable(
                plan.module.main.name, len(plan.devices)
            )
        elif isinstance(made := compile_module(self.module, plan.devices), UnshardedExecutable):
            self._whole_executable = made
        else:
            self._shard_executable = made
            self._device_executable = made if isinstance(made, DeviceExecutable) else None

    def __call__(self, leaves: list[PyTree], has_checks: bool = True) -> list[Array]:
        """Run on arrays, NumPy arrays and numbers; committed arguments must fit the program."""
        if self._number_checks and has_checks:
            return self._run_with_number_checks(leaves)
        check = None if self._inputs is None else self._check_inputs(self._inputs, leaves)
        if self.launch is not None:
            made = self.launch(leaves)
            if made is not None:
                return made
        if self._whole_executable is not None:
            return self._run_whole(self._whole_executable, leaves)
        if self._device_executable is not None:
            return self._run_on_devices(self._device_executable, leaves)
        if self.is_abstract:
            self._shard_executable([])
        foreign: list[Buffer] = []
        one = self._is_single_device
        # Inlined for arrays that need no transfer, because there may be hundreds.
        args = [
            leaf.device_shards
            if type(leaf) is Array and (one or leaf.signature.sharding is not None)
            else self._argument_shards(leaf, i, foreign)
            for i, leaf in enumerate(leaves)
        ]
        for i, leaf in enumerate(leaves):
            if type(leaf) is Array and leaf.buffers is args[i]:
                leaf.buffers = args[i] = self._shard_executable.arrange_argument(i, args[i])
        args += self._captured
        outs = (
            self._shard_executable(args)
            if check is None
            else self._shard_executable.run_checked(args, check)
        )
        if foreign:
            outs = [_copy_views(parts, foreign) for parts in outs]
        return [
            Array(signature, sharding, parts)
            for (signature, sharding), parts in zip(self._result_signatures, outs, strict=True)
        ]

    def _run_with_number_checks(self, leaves: list[object]) -> list[Array]:
        """Run, and raise an error if a result has numbers that the settings forbid."""
        main = self.plan.module.main
        captured = list(self._checked_captures)[: len(main.body.params) - len(leaves)]
        arguments = nonfinite_check.read_arguments([*leaves, *captured], main)
        results = self(leaves, has_checks=False)
        for check in self._number_checks:
            nonfinite_check.check_results(check, results, main, arguments)
        return results

    @locate_errors
    def _check_inputs(self, inputs: ReplicatedInputs, leaves: list[object]) -> InputCheck | None:
        """Return the comparison of inputs for this call; before the first call it includes all
        inputs."""
        self._shard_executable.begin()
        check = inputs.check(leaves, self._compared_captures)
        if not self._checks_inputs:
            self._inputs = None
        return check

    def _local_elements(self, leaf: object, i: int) -> Buffer:
        """Return the elements of a replicated argument in this process."""
        return leaf.to_numpy_view() if type(leaf) is Array else self._argument_elements(leaf, i)

    def memory(self) -> MemoryEstimate | None:
        """Return the memory of a run for all devices of this process together, where they share
        memory."""
        return self._executable.memory()

    def donated_bytes(self) -> Mapping[int, int]:
        """Return the results that reuse the memory of donated arguments, with their bytes."""
        return self._executable.overwritten_results(self.donated)

    def as_text(self, stage: str, *, locations: bool = False) -> str:
        """Return the program after a pass of its backend, or its `schedule`.

        Raises `PipelineError` that lists the stages.
        """
        program = self._executable
        if stage == "schedule":
            schedule = program.describe()
            if schedule is not None:
                return schedule
            raise PipelineError(
                "there is no schedule: NumPy runs this program operation by operation"
            )
        steps = Pipeline.parse(self.backend_passes())
        names = dict.fromkeys(step.name for step in steps.passes)
        stage = current_name(stage) if isinstance(stage, str) else stage
        if stage not in names:
            stages = ", ".join(names) + (", or schedule" if program.describe() else "")
            if not names:
                stages = "none: NumPy runs this program operation by operation"
            raise PipelineError(f"no stage is named {stage!r}; the stages are {stages}")
        return print_module(steps.through(stage)(self.module), locations=locations)

    def backend_passes(self) -> str:
        """Return the passes that the backend added to the pipeline, as text."""
        passes = self._executable.passes
        return backend_pipeline(self.plan.devices) if passes is None else passes

    def stage_texts(self) -> dict[str, str]:
        """Return the stages that are no programs: the `schedule`, if there is one."""
        schedule = self._executable.describe()
        return {} if schedule is None else {"schedule": schedule}

    @property
    def _executable(self) -> Executable | UnshardedExecutable:
        return self._shard_executable if self._whole_executable is None else self._whole_executable

    def _run_whole(self, program: UnshardedExecutable, leaves: Sequence[object]) -> list[Array]:
        """Run a program that takes unsharded arrays."""
        foreign: list[Storage] = []
        # Inlined for arrays that need no conversion, because there may be hundreds.
        args = [
            leaf.buffers
            if type(leaf) is Array and type(leaf.buffers) is Storage and leaf.buffers.shape == full
            else self._argument_storage(leaf, i, foreign)
            for i, (leaf, full) in enumerate(zip(leaves, self._padded_shapes, strict=False))
        ]
        outs = program.run(
            args + self._captured_storage if self._captured_storage else args, self.donated
        )
        if foreign:
            owners = {id(each.owner) for each in foreign}
            outs = [Storage.of(o.array.copy()) if id(o.owner) in owners else o for o in outs]
        return [
            Array(signature, sharding, out)
            for (signature, sharding), out in zip(self._result_signatures, outs, strict=True)
        ]

    def _run_on_devices(self, program: DeviceExecutable, leaves: Sequence[object]) -> list[Array]:
        """Run a program on devices with separate memory, where its arguments stay."""
        hidden = [program.to_device(shards) for shards in self._captured]
        self._captured = list(hidden)
        # Only arrays and this list refer to arguments, so that results can overwrite them.
        args = [self._move_argument(program, leaf, i) for i, leaf in enumerate(leaves)]
        args += hidden
        outs = program.run(args)
        return [
            Array(signature, sharding, shards)
            for (signature, sharding), shards in zip(self._result_signatures, outs, strict=True)
        ]

    def _move_argument(self, program: DeviceExecutable, leaf: object, i: int) -> DeviceShards:
        """Return an argument in device memory, where an array with its sharding stays."""
        shards = program.to_device(self._argument_shards(leaf, i))
        stays = self._is_single_device or (type(leaf) is Array and leaf.committed)
        if type(leaf) is Array and stays and i not in self.donated:
            leaf.buffers = shards
        return shards

    def _argument_storage(self, leaf: object, i: int, foreign: list[Storage]) -> Storage:
        """Return an argument in one allocation, and append it to `foreign` if the caller
        may write into it."""
        if type(leaf) is Array:
            storage = leaf.total_storage
            if storage.shape == self._padded_shapes[i]:
                return storage
            return Storage.of(pad_to_shards(leaf.to_numpy_view(), self.params[i]))
        made = Storage.of(pad_to_shards(self._argument_elements(leaf, i), self.params[i]))
        if not is_number(leaf):
            foreign.append(made)
        return made

    def _argument_shards(
        self, leaf: object, i: int, foreign: list[Buffer] | None = None
    ) -> Sequence[Buffer]:
        """Return the shard of each device of an argument."""
        if type(leaf) is Array:
            if self._is_single_device or leaf.signature.sharding is not None:
                return leaf.device_shards
            whole = leaf.device_shards[0]
        else:
            whole = self._argument_elements(leaf, i)
            if foreign is not None and not is_number(leaf):
                foreign.append(whole)
        return [whole] if self._is_single_device else split_into_shards(whole, self.params[i])

    def _argument_elements(self, leaf: object, i: int) -> Buffer:
        if not is_number(leaf):
            if (keys := jax_key_storage(leaf)) is not None:
                return keys
            if hasattr(leaf, "__jax_array__"):
                leaf = leaf.__jax_array__()
            if isinstance(leaf, ShapeDtypeStruct):
                raise NotAnArrayError(
                    with_location(
                        f"%{self._names[i]} is {leaf!r}, which has no elements; pass an array, or "
                        "inspect the program with .lower of the function"
                    )
                )
            return narrow_array(np.asarray(leaf), self._types[i], f"%{self._names[i]}")
        try:
            return np.asarray(leaf, self._types[i])
        except OverflowError:
            raise NumberRangeError(
                with_location(
                    f"the number {leaf} does not fit into {self._types[i]} (%{self._names[i]}); "
                    "shardir.enable_x64() allows 64-bit integers"
                )
            ) from None


def _copy_views(parts: Sequence[Buffer], foreign: Sequence[Buffer]) -> Sequence[Buffer]:
    """Return results with views of arrays that the caller may write into replaced by copies."""
    copies: dict[int, Buffer] = {}
    for part in parts:
        if id(part) not in copies:
            shared = any(np.may_share_memory(part, other) for other in foreign)
            copies[id(part)] = part.copy() if shared else part
    return [copies[id(part)] for part in parts]
