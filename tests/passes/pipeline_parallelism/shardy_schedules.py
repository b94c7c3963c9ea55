"""Fragments and transfers of Shardy's MPMD partitioner, which jaxlib's wheel contains.

The partitioner reads a module in which named computations are the passes of stages, and calls with
a counter are the microbatches. Mesh `m0` has stage 0, mesh `m1` stage 1, and so on.
"""

import importlib
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType

ACTIVATION, WEIGHT = "tensor<4x8xf32>", "tensor<8x8xf32>"

_FRAGMENT = re.compile(r"mpmd\.fragment<.*?^    \}", re.DOTALL | re.MULTILINE)
_TRANSFER = re.compile(r'mpmd\.transfer .*<"m(\d+)", (\S+)>\) -> !mpmd\.mesh_tensor<"m(\d+)"')


@dataclass(frozen=True)
class PartitionedProgram:
    """The fragments of all meshes in the order of the program, and the transfers between them."""

    rows: list[list[str]]
    """The passes of each mesh, in the notation of torch."""
    transfers: Counter[tuple[int, int, str]]
    """The number of transfers by source, target and type."""
    operations: list[list[str]]
    """The operations of each fragment."""


class _ModulesOfJax(MetaPathFinder, Loader):
    """Imports `jax.jaxlib`, the name that the extension expects, as `jaxlib`."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        is_alias = name == "jax.jaxlib" or name.startswith("jax.jaxlib.")
        return spec_from_loader(name, self) if is_alias else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return importlib.import_module(spec.name.removeprefix("jax."))

    def exec_module(self, module: ModuleType) -> None:
        return


def partition(text: str, stages: int, schedule: str = "none") -> PartitionedProgram:
    """Return what the partitioner makes of a module with computations `stage0`, `stage1`, ..."""
    import jax
    from jax._src.interpreters import mlir
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import mpmd

    hook = _ModulesOfJax()
    sys.meta_path.insert(0, hook)
    try:
        shardy = importlib.import_module("jaxlib._sdy_mpmd")
    finally:
        sys.meta_path.remove(hook)
        # Imports of submodules set attributes, and JAX has no public name like this.
        vars(jax).pop("jaxlib", None)
    splits = schedule.startswith("ZeroBubble")
    with mlir.make_ir_context() as context:
        mpmd.register_dialect(context)
        module = ir.Module.parse(text)
        main = module.body.operations[0].type
        made = shardy.apply_mpmd_partitioning(
            module,
            "main",
            [(f"m{i}", [("x", 2)]) for i in range(stages)],
            {f"stage{i}": (f"m{i}", i) for i in range(stages)},
            [None] * len(main.inputs),
            [None] * len(main.results),
            [],
            partitioning_options={
                "mpmd_pipeline_schedule": schedule,
                "mpmd_split_bwd_fragments": splits,
            },
            fragment_merge_rules=[],
            fragment_schedule_rules=[],
            phases=shardy.PartitioningPhase.IMPORT | shardy.PartitioningPhase.OPTIMIZE,
        ).mpmd_module
        rows: list[list[str]] = [[] for _ in range(stages)]
        kinds = {None: "B", shardy.SplitFragmentType.KEEP_TRANSFERRED: "I"}
        for fragment in shardy.get_fragment_info(made):
            is_backward = fragment.origins[0].transpose_count
            kind = kinds.get(fragment.split_type, "W") if is_backward else "F"
            rows[int(fragment.mesh_name[1:])].append(
                f"{fragment.stage_id}{kind}{fragment.call_counter or 0}"
            )
        found = str(made)
        transfers = Counter((int(a), int(b), kind) for a, kind, b in _TRANSFER.findall(found))
        operations = [re.findall(r"stablehlo\.(\w+)", each) for each in _FRAGMENT.findall(found)]
        return PartitionedProgram(rows, transfers, operations)


def perceptron(stages: int, microbatches: int) -> str:
    """Return the module of the gradients of a perceptron with one layer in each stage.

    The gradients of all microbatches are added in their order.
    """
    weights = ", ".join(f"%w{i}: {WEIGHT}" for i in range(stages))
    batches = ", ".join(f"%x{j}: {ACTIVATION}" for j in range(microbatches))
    gradients = ", ".join([WEIGHT] * stages)
    names = ", ".join(f"%w{i}" for i in range(stages))
    main = [f"func.func public @main({weights}, {batches}) -> ({gradients}) {{"]
    totals: list[str] = []
    for j in range(microbatches):
        main.append(
            f"%g{j}:{stages} = mpmd.call @microbatch({names}, %x{j}) {{call_counter = {j} : ui32}}"
            f" : ({gradients}, {ACTIVATION}) -> ({gradients})"
        )
        for i in range(stages if totals else 0):
            main.append(f"%t{j}_{i} = stablehlo.add {totals[i]}, %g{j}#{i} : {WEIGHT}")
        totals = [f"%t{j}_{i}" if j else f"%g0#{i}" for i in range(stages)]
    main += [f"return {', '.join(totals)} : {gradients}", "}"]
    body = [f"func.func private @microbatch({weights}, %h: {ACTIVATION}) -> ({gradients}) {{"]
    inputs = ["%h", *(f"%h{i}" for i in range(stages))]
    for i in range(stages):
        body += [
            f'%h{i} = mpmd.named_computation<"stage{i}"> (%w{i}, {inputs[i]})',
            f"(%w: {WEIGHT}, %x: {ACTIVATION}) {{",
            f"%y = stablehlo.dot %x, %w : ({ACTIVATION}, {WEIGHT}) -> {ACTIVATION}",
            f"mpmd.return %y : {ACTIVATION} }} : ({WEIGHT}, {ACTIVATION}) -> {ACTIVATION}",
        ]
    cotangent = inputs[-1]
    for i in reversed(range(stages)):
        body += [
            f'%c{i}:2 = mpmd.named_computation<"stage{i}"(1)> (%w{i}, {inputs[i]}, {cotangent})',
            f"(%w: {WEIGHT}, %x: {ACTIVATION}, %g: {ACTIVATION}) {{",
            "%dx = stablehlo.dot_general %g, %w, contracting_dims = [1] x [1] : "
            f"({ACTIVATION}, {WEIGHT}) -> {ACTIVATION}",
            "%dw = stablehlo.dot_general %x, %g, contracting_dims = [0] x [0] : "
            f"({ACTIVATION}, {ACTIVATION}) -> {WEIGHT}",
            f"mpmd.return %dx, %dw : {ACTIVATION}, {WEIGHT} }} : "
            f"({WEIGHT}, {ACTIVATION}, {ACTIVATION}) -> ({ACTIVATION}, {WEIGHT})",
        ]
        cotangent = f"%c{i}#0"
    returned = ", ".join(f"%c{i}#1" for i in range(stages))
    return "\n".join([*main, *body, f"return {returned} : {gradients}", "}"])
