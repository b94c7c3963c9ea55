"""Writing of operations that correspond to one StableHLO operation.

The other rules are in `compound` (several operations), `regions`, `ordering` and `control_flow`.
"""

from shardir import ops as ops  # declares the operations
from shardir.ir import Op
from shardir.ops.annotate import DIRECTIONS
from shardir.opset import OPS, Dense
from shardir.stablehlo import (
    collectives as collectives,
    compound as compound,
    control as control,
    decompositions as decompositions,
    ordering as ordering,
    regions as regions,
)
from shardir.stablehlo.attributes import array, boolean, integer, list_of, literal, sharding_text
from shardir.stablehlo.hashing import expand
from shardir.stablehlo.writer import RULES, Writer

NAMES = {
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

CHLO = (
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


def _named(name: str) -> None:
    RULES.rule(OPS[name])(lambda w, op: w.op(op, f"stablehlo.{NAMES[name]}"))


def _chlo(name: str) -> None:
    RULES.rule(OPS[name])(lambda w, op: w.op(op, f"chlo.{name}"))


def _compare(name: str) -> None:
    direction = f"#stablehlo<comparison_direction {name.upper()}>"
    RULES.rule(OPS[name])(
        lambda w, op: w.op(op, "stablehlo.compare", {"comparison_direction": direction})
    )


for _name in NAMES:
    _named(_name)
for _name in CHLO:
    _chlo(_name)
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _compare(_name)


@RULES.rule(OPS["nextafter"])
def _nextafter(w: Writer, op: Op) -> None:
    w.op(op, "chlo.next_after")


@RULES.rule(OPS["constant"])
def _constant(w: Writer, op: Op) -> None:
    value = op.attrs["value"]
    if isinstance(value, Dense) and op.result.type.size == 1:
        value = value.array.reshape(-1)[0].item()
    w.op(op, "stablehlo.constant", {"value": literal(value, op.result.type)})


@RULES.rule(OPS["iota"])
def _iota(w: Writer, op: Op) -> None:
    w.op(op, "stablehlo.iota", {"iota_dimension": integer(op.attrs["dim"])})


@RULES.rule(OPS["broadcast"])
def _broadcast(w: Writer, op: Op) -> None:
    w.op(op, "stablehlo.broadcast_in_dim", {"broadcast_dimensions": array(op.attrs["dims"])})


@RULES.rule(OPS["transpose"])
def _transpose(w: Writer, op: Op) -> None:
    w.op(op, "stablehlo.transpose", {"permutation": array(op.attrs["perm"])})


@RULES.rule(OPS["reverse"])
def _reverse(w: Writer, op: Op) -> None:
    w.op(op, "stablehlo.reverse", {"dimensions": array(op.attrs["dims"])})


@RULES.rule(OPS["slice"])
def _slice(w: Writer, op: Op) -> None:
    starts, strides = op.attrs["starts"], op.attrs["strides"]
    limits = [
        start + (size - 1) * stride + 1 if size else start
        for start, stride, size in zip(starts, strides, op.result.type.shape, strict=True)
    ]
    attrs = {
        "start_indices": array(starts),
        "limit_indices": array(limits),
        "strides": array(strides),
    }
    w.op(op, "stablehlo.slice", attrs)


@RULES.rule(OPS["pad"])
def _pad(w: Writer, op: Op) -> None:
    attrs = {
        "edge_padding_low": array(op.attrs["low"]),
        "edge_padding_high": array(op.attrs["high"]),
        "interior_padding": array(op.attrs["interior"]),
    }
    w.op(op, "stablehlo.pad", attrs)


@RULES.rule(OPS["concatenate"])
def _concatenate(w: Writer, op: Op) -> None:
    w.op(op, "stablehlo.concatenate", {"dimension": integer(op.attrs["dim"])})


@RULES.rule(OPS["dynamic_slice"])
def _dynamic_slice(w: Writer, op: Op) -> None:
    w.op(op, "stablehlo.dynamic_slice", {"slice_sizes": array(op.result.type.shape)})


@RULES.rule(OPS["dynamic_update_slice"])
def _dynamic_update_slice(w: Writer, op: Op) -> None:
    w.op(op, "stablehlo.dynamic_update_slice")


@RULES.rule(OPS["gather"])
def _gather(w: Writer, op: Op) -> None:
    x, indices = (value.type for value in op.operands)
    gone = (*op.attrs["collapsed_dims"], *op.attrs.get("operand_batching_dims", ()))
    offsets = iter(op.attrs["offset_dims"])
    shape = op.result.type.shape
    sizes = [min(1, n) if d in gone else shape[next(offsets)] for d, n in enumerate(x.shape)]
    numbers = {
        "offset_dims": list_of(op.attrs["offset_dims"]),
        "collapsed_slice_dims": list_of(op.attrs["collapsed_dims"]),
        "operand_batching_dims": list_of(op.attrs.get("operand_batching_dims", ())),
        "start_indices_batching_dims": list_of(op.attrs.get("indices_batching_dims", ())),
        "start_index_map": list_of(op.attrs["start_index_map"]),
        "index_vector_dim": str(indices.rank - 1),
    }
    attrs = {
        "dimension_numbers": _struct("stablehlo.gather", numbers),
        "slice_sizes": array(sizes),
        "indices_are_sorted": boolean(False),
    }
    w.op(op, "stablehlo.gather", attrs)


@RULES.rule(OPS["top_k"])
def _top_k(w: Writer, op: Op) -> None:
    count = op.results[0].type.shape[-1]
    if w.own_words:
        w.op(op, "chlo.top_k", {"k": integer(count)})
        return
    attrs = {
        "call_target_name": '"mhlo.topk"',
        "api_version": integer(1, 32),
        "has_side_effect": boolean(False),
        "backend_config": '""',
    }
    config = f"{{k = {count} : i64, largest = true}}"
    w.op(op, "stablehlo.custom_call", attrs, extra={"mhlo.attributes": config,
         "mhlo.version": integer(1)})  # fmt: skip


@RULES.rule(OPS["random_bits"], OPS["random_split"], OPS["random_fold_in"], OPS["random_hash"])
def _random(w: Writer, op: Op) -> None:
    """Write a custom call with the operation's name and scheme; consumers choose the generator."""
    if w.own_words:
        expand(w, op)
        return
    scheme = op.attrs.get("scheme", "")
    attrs = {
        "call_target_name": f'"shardir.{op.name}"',
        "has_side_effect": boolean(False),
        "backend_config": f'"{scheme}"',
    }
    w.op(op, "stablehlo.custom_call", attrs)


@RULES.rule(OPS["sharding_constraint"])
def _constraint(w: Writer, op: Op) -> None:
    _move(w, op, "sdy.sharding_constraint")


@RULES.rule(OPS["data_flow_edge"])
def _data_flow_edge(w: Writer, op: Op) -> None:
    """Write a constraint, since the call of the edge has been inlined."""
    _move(w, op, "sdy.sharding_constraint")


@RULES.rule(OPS["reshard"])
def _reshard(w: Writer, op: Op) -> None:
    _move(w, op, "sdy.reshard")


def _move(w: Writer, op: Op, name: str) -> None:
    sharding = op.result.sharding
    if sharding is None:
        w.alias(op.result, w.name(op.operands[0]))
        return
    text = f"#sdy.sharding{sharding_text(sharding, w.meshes[sharding.mesh])}"
    w.op(op, name, {"sharding": text}, annotate=False)


@RULES.rule(OPS["sharding_group"])
def _group(w: Writer, op: Op) -> None:
    w.op(op, "sdy.sharding_group", {"group_id": integer(op.attrs["group"])})


@RULES.rule(OPS["propagation_barrier"])
def _propagation_barrier(w: Writer, op: Op) -> None:
    number = DIRECTIONS.index(op.attrs["direction"])
    w.op(op, "sdy.propagation_barrier", {"allowed_direction": integer(number, 32)})


@RULES.rule(OPS["opaque"])
def _opaque(w: Writer, op: Op) -> None:
    attrs = op.attrs
    w.carried(op, attrs["head"], attrs["attributes"], attrs["types"])


@RULES.rule(OPS["callback"], OPS["pure-callback"], OPS["inspect-sharding"])
def _callback(w: Writer, op: Op) -> None:
    """Write a custom call with the name of the function in the host program."""
    effect = "true" if op.spec.effect else "false"
    attrs = {"call_target_name": f'"{op.attrs["function"]}"', "has_side_effect": effect}
    w.op(op, "stablehlo.custom_call", attrs)


@RULES.rule(OPS["stop_gradient"], OPS["checkpoint-name"], OPS["done"], OPS["vary"])
def _same(w: Writer, op: Op) -> None:
    w.alias(op.result, w.name(op.operands[0]))


def _struct(name: str, fields: dict[str, str]) -> str:
    return f"#{name}<{', '.join(f'{key} = {value}' for key, value in fields.items())}>"
