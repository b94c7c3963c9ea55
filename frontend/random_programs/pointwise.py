"""Samplers of pointwise operations."""

from shardir import ops
from shardir.frontend.random_programs.scope import ARITHMETIC, DTYPES, NUMBERS, REAL, Scope, sampler
from shardir.ir.operation import OPS, OpSpec, Symbol
from shardir.ir.types import COMPLEX, TensorType
from shardir.stablehlo.writing.attributes import format_tensor


def _takes(spec: OpSpec, arity: int, dtype: str) -> bool:
    try:
        spec.type(*[TensorType((2,), dtype)] * arity, result=None)
    except TypeError:
        return False
    return True


_OTHER_OPERATIONS = (
    ops.clamp,
    ops.convert,
    ops.propagation_barrier,
    ops.random_fold_in,
    ops.random_hash,
    ops.reshard,
    ops.select,
    ops.sharding_constraint,
    ops.stop_gradient,
    ops.vary,
)


def accepted_operands(spec: OpSpec) -> tuple[tuple[int, str], ...]:
    """Return the operand counts and the element types that a pointwise operation accepts."""
    if not spec.elementwise or spec in _OTHER_OPERATIONS:
        return ()
    return tuple((n, dtype) for n in (1, 2) for dtype in DTYPES if _takes(spec, n, dtype))


POINTWISE = {name: taken for name, spec in OPS.items() if (taken := accepted_operands(spec))}
"""The operands of pointwise operations by name."""


def register_pointwise(spec: OpSpec) -> bool:
    """Register the sampler of a pointwise operation of another package; return whether it is
    one."""
    taken = accepted_operands(spec)
    if taken:
        POINTWISE[spec.name] = taken
        sampler(spec.name)(_append_pointwise)
    return bool(taken)


@sampler(*POINTWISE)
def _append_pointwise(s: Scope, name: str) -> None:
    arity = POINTWISE[name][0][0]
    x = s.tensor([dtype for _, dtype in POINTWISE[name]])
    s.emit(name, x, *(s.value(x.type) for _ in range(arity - 1)))


@sampler("stop_gradient", "reshard", "sharding_constraint")
def _(s: Scope, name: str) -> None:
    s.emit(name, s.tensor())


@sampler("propagation_barrier")
def _(s: Scope, name: str) -> None:
    s.emit(name, s.tensor(), direction=Symbol(s.choose("none", "forward", "backward")))


@sampler("sharding_group")
def _(s: Scope, name: str) -> None:
    x = s.tensor()
    # The number encodes the shape, because members of one group have one shape.
    s.emit(name, x, group=sum((size + 1) * 100**dim for dim, size in enumerate(x.type.shape)))


@sampler("opaque")
def _(s: Scope, name: str) -> None:
    xs = [s.tensor(NUMBERS) for _ in range(s.integer(0, 2))]
    results = [s.type(NUMBERS) for _ in range(s.integer(1, 2))]
    given = ", ".join(format_tensor(x.type) for x in xs)
    types = f": ({given}) -> ({', '.join(map(format_tensor, results))})"
    s.emit(
        name,
        *xs,
        operation="stablehlo.custom_call @f",
        head=f"stablehlo.custom_call @f({', '.join('%' * len(xs))})",
        attributes=s.choose("", 'backend_config = "%x"'),
        types=types,
        pointwise=s.flag(),
        result=results[0] if len(results) == 1 else tuple(results),
    )


@sampler("select")
def _(s: Scope, name: str) -> None:
    x = s.tensor()
    pred = s.value(TensorType(s.choose(x.type.shape, ()), "bool"))
    s.emit(name, pred, x, s.value(x.type))


@sampler("clamp")
def _(s: Scope, name: str) -> None:
    x = s.tensor(REAL)
    bound = x.type.with_shape(s.choose(x.type.shape, ()))
    s.emit(name, s.value(bound), x, s.value(bound))


@sampler("convert")
def _(s: Scope, name: str) -> None:
    x = s.tensor(ARITHMETIC)
    s.emit(name, x, result=x.type.with_dtype(s.choose(*ARITHMETIC)))


@sampler("bitcast")
def _(s: Scope, name: str) -> None:
    x = s.tensor([d for d in DTYPES if d not in ("bool", *COMPLEX)])
    if x.type.dtype == "key":
        s.emit(name, x, result=TensorType((*x.type.shape, 2), "u32"))
        return
    width = x.type.numpy.itemsize
    same = [d for d in REAL if TensorType((), d).numpy.itemsize <= width and d != "u32"]
    dtype = s.choose(*same)
    ratio = width // TensorType((), dtype).numpy.itemsize
    s.emit(name, x, result=TensorType((*x.type.shape, *[ratio][: ratio > 1]), dtype))
