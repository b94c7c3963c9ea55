"""Prefix scans along a dimension: cumulative sums, products and extrema.

All except `cumsum` are differentiated as a doubling (Hillis-Steele) scan: step k combines each
element with the one 2^k before it. Its steps have simple derivatives without division, so zeros,
ties and higher orders are handled correctly.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from shardir.ir.arithmetic import EXTREMUM, ORDINARY, Arithmetic
from shardir.ir.builder import Builder
from shardir.ir.operation import OPS, Cotangents, OpSpec, TangentRule, Value, define_op
from shardir.ir.rules import CotangentRule
from shardir.ir.types import NumpyArray, TensorType
from shardir.op_rules.batching import ShiftDims
from shardir.op_rules.factors import FactorKind, FactorRule, RuleBuilder
from shardir.op_rules.partitioning import identity_element
from shardir.op_rules.tangents import linear_tangent
from shardir.ops.elementwise import numerics
from shardir.ops.reductions.cumulative_partitioning import Combine, ScanAttributes, partition_scan
from shardir.ops.type_checks import FLOAT, NUMERIC, ORDERED, DtypeDomain, check_dim

Pull = Callable[[Builder, Value, Value, Value, Value], tuple[Value, Value]]
"""The type of a step's vjp:

(builder, cotangent, both operands of `Combine`, its result) -> cotangents of both operands.
"""


def _factors(x: TensorType, *, attributes: ScanAttributes, result: TensorType) -> FactorRule:
    """Return the rule: shards of the dimension depend on the totals of all preceding shards."""
    builder = RuleBuilder([x.shape], [x.shape])
    for d, size in enumerate(x.shape):
        builder.add(
            [d],
            [d],
            size,
            FactorKind.PERMUTE if d == attributes.dim and size != 1 else FactorKind.PASS,
        )
    return builder.build()


def _define_scan(
    name: str,
    takes: DtypeDomain,
    numpy: Callable[[NumpyArray, int], NumpyArray],
    vjp: CotangentRule[Value],
    jvp: TangentRule | None = None,
    *,
    nothing: Callable[[str], complex],
    combine: Combine,
    arithmetic: Arithmetic = ORDINARY,
) -> OpSpec:
    def type(x: TensorType, *, attributes: ScanAttributes, result: TensorType | None) -> TensorType:
        takes.check(x)
        check_dim(x, attributes.dim)
        return x

    def reference(x: NumpyArray, *, attributes: ScanAttributes, result: TensorType) -> NumpyArray:
        dim, reverse = attributes.dim, attributes.reverse
        turned = np.flip(x, dim) if reverse else x
        with np.errstate(all="ignore"):
            wide = numpy(turned.astype(numerics.accumulation_dtype(x.dtype)), dim)
        run = numerics.round_to(wide, result.numpy)
        return np.flip(run, dim) if reverse else run

    return define_op(
        name,
        attributes=ScanAttributes,
        type=type,
        factors=_factors,
        reference=reference,
        batch=ShiftDims("dim"),
        vjp=vjp,
        jvp=jvp,
        partition=partition_scan(name, nothing, combine),
        arithmetic=arithmetic,
    )


def _accumulate(
    combine: Callable[[NumpyArray, NumpyArray], NumpyArray],
) -> Callable[[NumpyArray, int], NumpyArray]:
    """Return a function that combines slices along a dimension one after another."""

    def run(x: NumpyArray, dim: int) -> NumpyArray:
        out = np.array(x)
        for i in range(1, x.shape[dim]):
            current, before = ((slice(None),) * dim + (n,) for n in (i, i - 1))
            out[current] = combine(out[before], out[current])
        return out

    return run


def _cumsum_vjp(
    b: Builder, g: Value, x: Value, y: Value, *, attributes: ScanAttributes
) -> Cotangents:
    return (b.cumsum(g, dim=attributes.dim, reverse=not attributes.reverse),)


def _doubling_vjp(
    identity: Callable[[TensorType], float], combine: Combine, pull: Pull
) -> CotangentRule[Value]:
    """Return the vjp of a scan given the vjp of one step."""

    def vjp(b: Builder, g: Value, x: Value, y: Value, *, attributes: ScanAttributes) -> Cotangents:
        dim, reverse = attributes.dim, attributes.reverse

        def shift(value: Value, step: int, fill: float) -> Value:
            step = -step if reverse else step
            low = tuple(step if d == dim else 0 for d in range(x.type.rank))
            high = tuple(-n for n in low)
            filler = b.full(fill, x.type.with_shape(()))
            return b.pad(value, filler, low=low, high=high, interior=(0,) * x.type.rank)

        steps, total, step = [], x, 1
        while step < x.type.shape[dim]:
            earlier = shift(total, step, identity(x.type))
            combined = combine(b, total, earlier)
            steps.append((step, total, earlier, combined))
            total, step = combined, step * 2
        for step, total, earlier, combined in reversed(steps):
            own, before = pull(b, g, total, earlier, combined)
            g = b.add(own, shift(before, -step, 0))
        return (g,)

    return vjp


def _step_of_op(name: str) -> tuple[Combine, Pull]:
    """Return the step of a scan for an operation that has a vjp."""

    def combine(b: Builder, x: Value, earlier: Value) -> Value:
        made: Value = b.emit(OPS[name], x, earlier)
        return made

    def pull(b: Builder, g: Value, x: Value, earlier: Value, z: Value) -> tuple[Value, Value]:
        rule = OPS[name].vjp
        assert rule is not None
        own, before = rule(b, g, x, earlier, z)
        assert own is not None
        assert before is not None
        return own, before

    return combine, pull


def _log_add_exp(b: Builder, x: Value, earlier: Value) -> Value:
    """Return log(exp(x) + exp(earlier)) without overflow, also for two infinities."""
    top = b.maximum(x, earlier)
    gap = b.neg(b.abs(b.sub(x, earlier)))
    equal = b.eq(x, earlier)
    safe = b.select(equal, b.full(0, x.type), gap)
    infinite = b.eq(b.abs(top), b.full(np.inf, x.type))
    return b.select(infinite, top, b.add(top, b.log1p(b.exp(safe))))


def _log_add_exp_pull(
    b: Builder, g: Value, x: Value, earlier: Value, z: Value
) -> tuple[Value, Value]:
    def share(part: Value) -> Value:
        """Return exp(part - z), and zero where `part` is -inf."""
        nothing = b.eq(part, b.full(-np.inf, x.type))
        safe = b.select(nothing, z, part)
        return b.select(nothing, b.full(0, x.type), b.exp(b.sub(safe, z)))

    return b.mul(g, share(x)), b.mul(g, share(earlier))


cumsum = _define_scan(
    "cumsum",
    NUMERIC,
    lambda x, dim: np.cumsum(x, dim, x.dtype),
    _cumsum_vjp,
    linear_tangent,
    nothing=partial(identity_element, "add"),
    combine=_step_of_op("add")[0],
)
cumprod = _define_scan(
    "cumprod",
    NUMERIC,
    lambda x, dim: np.cumprod(x, dim, x.dtype),
    _doubling_vjp(lambda x: 1, *_step_of_op("mul")),
    nothing=partial(identity_element, "mul"),
    combine=_step_of_op("mul")[0],
)
cummax = _define_scan(
    "cummax",
    ORDERED,
    _accumulate(numerics.maximum),
    _doubling_vjp(lambda x: -np.inf, *_step_of_op("maximum")),
    nothing=partial(identity_element, "max"),
    combine=_step_of_op("maximum")[0],
    arithmetic=EXTREMUM,
)
cummin = _define_scan(
    "cummin",
    ORDERED,
    _accumulate(numerics.minimum),
    _doubling_vjp(lambda x: np.inf, *_step_of_op("minimum")),
    nothing=partial(identity_element, "min"),
    combine=_step_of_op("minimum")[0],
    arithmetic=EXTREMUM,
)
cumlogsumexp = _define_scan(
    "cumlogsumexp",
    FLOAT,
    np.logaddexp.accumulate,
    _doubling_vjp(lambda x: -np.inf, _log_add_exp, _log_add_exp_pull),
    nothing=partial(identity_element, "max"),
    combine=_log_add_exp,
)
