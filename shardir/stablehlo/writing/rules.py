"""Writing of operations that correspond to one StableHLO operation.

The other rules are in `compound` (several operations), `regions`, `ordering` and `control_flow`.
"""

from shardir import ops as ops  # declares the operations
from shardir.ir.module import Op
from shardir.ir.operation import OPS, Dense
from shardir.ops.communication.annotations import DIRECTIONS
from shardir.stablehlo.writing import (
    collectives as collectives,
    compound as compound,
    control_flow as control_flow,
    decompositions as decompositions,
    ordering as ordering,
    regions as regions,
    scattering as scattering,
)
from shardir.stablehlo.writing.attributes import (
    format_array,
    format_boolean,
    format_int_list,
    format_integer,
    format_literal,
    format_sharding,
)
from shardir.stablehlo.writing.local_opaque import local_types, without_rule
from shardir.stablehlo.writing.random_bits import write_threefry
from shardir.stablehlo.writing.writer import WRITERS, ExportError, MlirWriter

STABLEHLO_NAMES = {
    "add": "add",
    "and": "and",
    "atan2": "atan2",
    "cbrt": "cbrt",
    "ceil": "ceil",
    "clamp": "clamp",
    "clz": "count_leading_zeros",
    "complex": "complex",
    "convert": "convert",
    "cos": "cosine",
    "div": "divide",
    "exp": "exponential",
    "expm1": "exponential_minus_one",
    "floor": "floor",
    "imag": "imag",
    "log": "log",
    "log1p": "log_plus_one",
    "logistic": "logistic",
    "maximum": "maximum",
    "minimum": "minimum",
    "mul": "multiply",
    "neg": "negate",
    "not": "not",
    "optimization_barrier": "optimization_barrier",
    "or": "or",
    "popcnt": "popcnt",
    "pow": "power",
    "real": "real",
    "rem": "remainder",
    "reshape": "reshape",
    "round": "round_nearest_even",
    "rsqrt": "rsqrt",
    "select": "select",
    "shift_left": "shift_left",
    "shift_right_arithmetic": "shift_right_arithmetic",
    "shift_right_logical": "shift_right_logical",
    "sin": "sine",
    "sqrt": "sqrt",
    "sub": "subtract",
    "tan": "tan",
    "tanh": "tanh",
    "xor": "xor",
}
"""The StableHLO names of operations without attributes."""

CHLO_NAMES = (
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "conj",
    "cosh",
    "digamma",
    "erf",
    "erf_inv",
    "erfc",
    "lgamma",
    "sinh",
)
"""Operations with the same name in the CHLO dialect, which JAX uses too."""


def _register_named(name: str) -> None:
    WRITERS.rule(OPS[name])(lambda w, op: w.write_op(op, f"stablehlo.{STABLEHLO_NAMES[name]}"))


def _register_chlo(name: str) -> None:
    WRITERS.rule(OPS[name])(lambda w, op: w.write_op(op, f"chlo.{name}"))


def _register_compare(name: str) -> None:
    direction = f"#stablehlo<comparison_direction {name.upper()}>"
    WRITERS.rule(OPS[name])(
        lambda w, op: w.write_op(op, "stablehlo.compare", {"comparison_direction": direction})
    )


for _name in STABLEHLO_NAMES:
    _register_named(_name)
for _name in CHLO_NAMES:
    _register_chlo(_name)
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _register_compare(_name)


@WRITERS.rule(OPS["nextafter"])
def _nextafter(w: MlirWriter, op: Op) -> None:
    w.write_op(op, "chlo.next_after")


@WRITERS.rule(OPS["constant"])
def _constant(w: MlirWriter, op: Op) -> None:
    value = op.attrs["value"]
    if isinstance(value, Dense) and op.result.type.size == 1:
        value = value.array.reshape(-1)[0].item()
    w.write_op(op, "stablehlo.constant", {"value": format_literal(value, op.result.type)})


@WRITERS.rule(OPS["iota"])
def _iota(w: MlirWriter, op: Op) -> None:
    w.write_op(op, "stablehlo.iota", {"iota_dimension": format_integer(op.attrs["dim"])})


@WRITERS.rule(OPS["broadcast"])
def _broadcast(w: MlirWriter, op: Op) -> None:
    w.write_op(
        op, "stablehlo.broadcast_in_dim", {"broadcast_dimensions": format_array(op.attrs["dims"])}
    )


@WRITERS.rule(OPS["transpose"])
def _transpose(w: MlirWriter, op: Op) -> None:
    w.write_op(op, "stablehlo.transpose", {"permutation": format_array(op.attrs["perm"])})


@WRITERS.rule(OPS["reverse"])
def _reverse(w: MlirWriter, op: Op) -> None:
    w.write_op(op, "stablehlo.reverse", {"dimensions": format_array(op.attrs["dims"])})


@WRITERS.rule(OPS["slice"])
def _slice(w: MlirWriter, op: Op) -> None:
    starts, strides = op.attrs["starts"], op.attrs["strides"]
    limits = [
        start + (size - 1) * stride + 1 if size else start
        for start, stride, size in zip(starts, strides, op.result.type.shape, strict=True)
    ]
    attrs = {
        "start_indices": format_array(starts),
        "limit_indices": format_array(limits),
        "strides": format_array(strides),
    }
    w.write_op(op, "stablehlo.slice", attrs)


@WRITERS.rule(OPS["pad"])
def _pad(w: MlirWriter, op: Op) -> None:
    attrs = {
        "edge_padding_low": format_array(op.attrs["low"]),
        "edge_padding_high": format_array(op.attrs["high"]),
        "interior_padding": format_array(op.attrs["interior"]),
    }
    w.write_op(op, "stablehlo.pad", attrs)


@WRITERS.rule(OPS["concatenate"])
def _concatenate(w: MlirWriter, op: Op) -> None:
    w.write_op(op, "stablehlo.concatenate", {"dimension": format_integer(op.attrs["dim"])})


@WRITERS.rule(OPS["dynamic_slice"])
def _dynamic_slice(w: MlirWriter, op: Op) -> None:
    w.write_op(op, "stablehlo.dynamic_slice", {"slice_sizes": format_array(op.result.type.shape)})


@WRITERS.rule(OPS["dynamic_update_slice"])
def _dynamic_update_slice(w: MlirWriter, op: Op) -> None:
    w.write_op(op, "stablehlo.dynamic_update_slice")


@WRITERS.rule(OPS["gather"])
def _gather(w: MlirWriter, op: Op) -> None:
    x, indices = (value.type for value in op.operands)
    gone = (*op.attrs["collapsed_dims"], *op.attrs.get("operand_batching_dims", ()))
    offsets = iter(op.attrs["offset_dims"])
    shape = op.result.type.shape
    sizes = [min(1, n) if d in gone else shape[next(offsets)] for d, n in enumerate(x.shape)]
    numbers = {
        "offset_dims": format_int_list(op.attrs["offset_dims"]),
        "collapsed_slice_dims": format_int_list(op.attrs["collapsed_dims"]),
        "operand_batching_dims": format_int_list(op.attrs.get("operand_batching_dims", ())),
        "start_indices_batching_dims": format_int_list(op.attrs.get("indices_batching_dims", ())),
        "start_index_map": format_int_list(op.attrs["start_index_map"]),
        "index_vector_dim": str(indices.rank - 1),
    }
    attrs = {
        "dimension_numbers": _struct("stablehlo.gather", numbers),
        "slice_sizes": format_array(sizes),
        "indices_are_sorted": format_boolean(False),
    }
    w.write_op(op, "stablehlo.gather", attrs)


@WRITERS.rule(OPS["top_k"])
def _top_k(w: MlirWriter, op: Op) -> None:
    count = op.results[0].type.shape[-1]
    if w.for_xla:
        w.write_op(op, "chlo.top_k", {"k": format_integer(count)})
        return
    attrs = {
        "call_target_name": '"mhlo.topk"',
        "api_version": format_integer(1, 32),
        "has_side_effect": format_boolean(False),
        "backend_config": '""',
    }
    config = f"{{k = {count} : i64, largest = true}}"
    w.write_op(op, "stablehlo.custom_call", attrs, extra={"mhlo.attributes": config,
         "mhlo.version": format_integer(1)})  # fmt: skip


@WRITERS.rule(OPS["random_bits"], OPS["random_split"], OPS["random_fold_in"], OPS["random_hash"])
def _random(w: MlirWriter, op: Op) -> None:
    """Write a custom call with the operation's name and scheme; consumers choose the generator."""
    if w.for_xla:
        write_threefry(w, op)
        return
    scheme = op.attrs.get("scheme", "")
    attrs = {
        "call_target_name": f'"shardir.{op.name}"',
        "has_side_effect": format_boolean(False),
        "backend_config": f'"{scheme}"',
    }
    w.write_op(op, "stablehlo.custom_call", attrs)


@WRITERS.rule(OPS["sharding_constraint"])
def _constraint(w: MlirWriter, op: Op) -> None:
    _write_reshard(w, op, "sdy.sharding_constraint")


@WRITERS.rule(OPS["reshard"])
def _reshard(w: MlirWriter, op: Op) -> None:
    _write_reshard(w, op, "sdy.reshard")


def _write_reshard(w: MlirWriter, op: Op, name: str) -> None:
    sharding = op.result.sharding
    if sharding is None:
        w.alias(op.result, w.name(op.operands[0]))
        return
    text = f"#sdy.sharding{format_sharding(sharding, w.meshes[sharding.mesh])}"
    w.write_op(op, name, {"sharding": text}, annotate=False)


@WRITERS.rule(OPS["sharding_group"])
def _group(w: MlirWriter, op: Op) -> None:
    w.write_op(op, "sdy.sharding_group", {"group_id": format_integer(op.attrs["group"])})


@WRITERS.rule(OPS["propagation_barrier"])
def _propagation_barrier(w: MlirWriter, op: Op) -> None:
    number = DIRECTIONS.index(op.attrs["direction"])
    w.write_op(op, "sdy.propagation_barrier", {"allowed_direction": format_integer(number, 32)})


@WRITERS.rule(OPS["opaque"])
def _opaque(w: MlirWriter, op: Op) -> None:
    attrs = op.attrs
    if w.replicas:
        w.write_opaque(op, attrs["head"], without_rule(attrs["attributes"]), local_types(op))
    else:
        w.write_opaque(op, attrs["head"], attrs["attributes"], attrs["types"])


@WRITERS.rule(OPS["callback"], OPS["pure-callback"], OPS["inspect-sharding"], OPS["pipeline-call"])
def _callback(w: MlirWriter, op: Op) -> None:
    """Write a custom call with the name of the function in the host program."""
    effect = "true" if op.spec.effect else "false"
    attrs = {"call_target_name": f'"{op.attrs["function"]}"', "has_side_effect": effect}
    w.write_op(op, "stablehlo.custom_call", attrs)


@WRITERS.rule(
    OPS["stop_gradient"], OPS["checkpoint-name"], OPS["pipeline-stage"], OPS["done"], OPS["vary"]
)
def _write_alias(w: MlirWriter, op: Op) -> None:
    w.alias(op.result, w.name(op.operands[0]))


@WRITERS.rule(OPS["pipeline"], OPS["staged-pipeline"])
def _refuse_pipeline(w: MlirWriter, op: Op) -> None:
    raise ExportError(
        f"%{op.results[0].name} = {op.name} has no text; run the pass inline-pipelines before"
    )


def _struct(name: str, fields: dict[str, str]) -> str:
    return f"#{name}<{', '.join(f'{key} = {value}' for key, value in fields.items())}>"
