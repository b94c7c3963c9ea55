"""Which of Shardy's test files are run, how, and which cases are left out, and why.

To add a suite, add an entry: the files, what our side of their RUN line is, and how what comes
out is compared.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from shardir.ir import Function, Module
from shardir.passes import Propagate, ReshardExactly
from shardir.passes.propagation.constants import split_constants
from shardir.passes.propagation.draft import Draft
from tests.shardy.checks import Case
from tests.shardy.collectives import compare_collectives
from tests.shardy.matching import Manner, Matcher
from tests.shardy.moving import MoveMatcher, with_names_kept

SDY = "shardy/dialect/sdy/transforms"
Passes = Callable[[Module], Module]


@dataclass(frozen=True)
class Suite:
    """`files` are paths below the checkout; `passes` is what is done before the comparison.

    `origins` is what is asked where axes came from, where that is compared.
    `whole`: what would be several operations of ours is one, carried through as text.
    `alone`: each function is run without the others of its module.
    `compare` is what is done instead of following the lines.
    `counts` tells whether its cases are among those we answer for: propagation, rules, origins.
    """

    name: str
    files: tuple[str, ...]
    passes: Passes
    manner: Manner
    counts: bool = True
    origins: Propagate | None = None
    compare: Callable[[Case, Module], list[str]] | None = None
    matcher: type[Matcher] = Matcher
    whole: bool = False
    alone: bool = False
    left_out: dict[str, str] = field(default_factory=dict)


def _propagation(*names: str) -> tuple[str, ...]:
    return tuple(f"{SDY}/propagation/test/{name}.mlir" for name in names)


def _import(name: str) -> str:
    return f"{SDY}/import/test/{name}.mlir"


def _constants_split(module: Module) -> Module:
    """The first preparation of propagation alone."""
    return replace(module, functions=tuple(map(_split, module.functions)))


def _split(function: Function) -> Function:
    draft = Draft(function)
    split_constants(draft)
    return draft.build()


def _moved(module: Module) -> Module:
    return with_names_kept(ReshardExactly()(module))


EXPORT = f"{SDY}/export/test"
RESHARDS = (
    "bitcast_convert", "broadcast_in_dim", "call_ops", "cholesky_triangular_solve", "clamp_select",
    "collective_ops", "concatenate", "convolution", "custom_call", "data_flow_ops",
    "dot_dot_general", "dynamic_slice_dynamic_update_slice", "elementwise_ops", "fft",
    "func_inputs_outputs", "gather_scatter", "manual_computation", "meshes", "pad_slice", "reduce",
    "reduce_window_select_and_scatter", "reshape", "reverse", "rng_bit_generator",
    "single_device_sharding", "sort", "unreduced",
)  # fmt: skip


def _as_read(module: Module) -> Module:
    return module


SUITES = (
    Suite(
        "rules",
        _propagation("op_sharding_rule_registry", "op_sharding_rule_registry_failures"),
        _as_read,
        Manner(),
        whole=True,
    ),
    Suite(
        "basic",
        _propagation("basic_propagation", "basic_propagation_keep_sharding_rules",
                     "basic_propagation_token", "basic_propagation_data_flow_edges",
                     "basic_propagation_manual_computation", "sharding_group_propagation"),
        Propagate(level="basic", keep_open=True, prepare=False),
        Manner(),
        left_out={
            "foo": "call graph: nothing is to flow into a function that is called before the "
            "passes that import calls; we read it in place of the call",
        },
    ),
    Suite(
        "aggressive",
        _propagation("aggressive_propagation"),
        Propagate(level="aggressive", keep_open=True, prepare=False),
        Manner(),
    ),
    Suite(
        "op-priority",
        _propagation("op_priority_propagation"),
        Propagate(level="op-priority", keep_open=True, prepare=False),
        Manner(),
    ),
    Suite(
        "user-priority",
        _propagation("user_priority_propagation"),
        Propagate(level="user-priority", keep_open=True, prepare=False),
        Manner(),
    ),
    Suite(
        "origins",
        (f"{SDY}/propagation/debugging/test/sharding_origins.mlir",),
        Propagate(level="aggressive", keep_open=True),
        Manner(),
        origins=Propagate(level="aggressive", keep_open=True),
    ),
    Suite(
        "pipeline",
        _propagation("propagation_pipeline", "propagation_pipeline_data_flow_edges",
                     "propagation_pipeline_dedup_functions_fully_true"),
        Propagate(),
        Manner(closed=True, moved=True),
    ),
    Suite(
        "reshards",
        tuple(f"{EXPORT}/insert_explicit_reshards/{name}.mlir" for name in RESHARDS),
        _moved,
        Manner(closed=True),
        matcher=MoveMatcher,
        whole=True,
        alone=True,
    ),
    Suite(
        "collectives",
        (f"{EXPORT}/reshard_to_collectives.mlir",),
        _as_read,
        Manner(),
        compare=compare_collectives,
    ),
    Suite(
        "import as read",
        (_import("lift_inlined_meshes"), _import("manual_axes_cleanup"),
         _import("sharding_group_import")),
        _as_read,
        Manner(),
        counts=False,
    ),
    Suite(
        "import constants",
        (_import("constant_or_scalar_splitter"),),
        _constants_split,
        Manner(),
        counts=False,
    ),
)  # fmt: skip
