"""The library of vector math functions; each function is compiled when it is first needed.

A function has the LLVM signature `VEC NAME(VEC, ...)`, where VEC is `<LANES x float>` or `<LANES x
double>`. Functions are out of line, so that a kernel with five of them compiles in the time of one
without any; and wide, so that a call costs little. Each is straight-line code over all its lanes
(selects, no branches), except for the rare arguments that docs/numerics.md names.
"""

from collections.abc import Iterable, Mapping, Sequence
from threading import RLock

from shardir.backends.cpu.native.llvm.compiler import named
from shardir.backends.cpu.native.llvm.text import Function, Module, Value, element, lanes, vector
from shardir.backends.cpu.native.vector import (
    exponential,
    gamma,
    hyperbolic_tangent,
    inverse,
    logarithm,
    power,
    special,
    trigonometric,
)
from shardir.backends.cpu.native.vector.arithmetic import Functions
from shardir.backends.cpu.native.vector.tables import has_registers

LANES = {"f32": 16, "f64": 8}
"""The number of elements of a call."""

ELEMENTS = {"f32": "float", "f64": "double"}
BODIES: Functions = {
    **exponential.FUNCTIONS,
    **hyperbolic_tangent.FUNCTIONS,
    **logarithm.FUNCTIONS,
    **trigonometric.FUNCTIONS,
    **inverse.FUNCTIONS,
    **power.FUNCTIONS,
    **special.FUNCTIONS,
    **gamma.FUNCTIONS,
}
"""The number of operands of each function, and the emitter of its instructions."""
BY_DOUBLE = ("erfc", "erf_inv", "lgamma", "digamma", "rem", "sin_ln2", "cos_ln2")
"""Functions that are computed in f64 for f32 and rounded once. They are long, and never inlined."""
LONG = ("sin", "cos", "tan")
"""Functions that are not inlined in f64: their reduction of large arguments is long."""

_addresses: dict[str, int] = {}
_lock = RLock()


def abreast() -> int:
    """Return how many vectors an inlined function processes at once.

    More vectors hide the latency of dependent steps if registers hold them: two more reduced the
    time of functions by 3 to 20 % with AVX-512.
    """
    return 4 if has_registers() else 2


def symbol(op_name: str, dtype: str) -> str | None:
    """Return the symbol of an operation on f32 or f64; `None` if the library does not have it."""
    if op_name not in BODIES or dtype not in LANES:
        return None
    return f"shardir_{op_name}_{dtype}"


def symbols() -> tuple[str, ...]:
    """Return all symbols, in a fixed order."""
    return tuple(f"shardir_{op}_{dtype}" for op in BODIES for dtype in LANES)


def symbols_of(module: Module) -> tuple[str, ...]:
    """Return the library symbols that a module declares, which its kernel imports."""
    declared = "\n".join(module.declarations)
    return tuple(name for name in symbols() if f"@{name}(" in declared)


def addresses(names: Iterable[str] | None = None) -> Mapping[str, int]:
    """Return the addresses of functions (`None`: all), compiled or loaded from disk on demand.

    Names that are not of this library are left out.
    """
    found = {}
    for name in symbols() if names is None else names:
        if _known(name) is not None:
            with _lock:
                if name not in _addresses:
                    _addresses[name] = _compiled(name)
            found[name] = _addresses[name]
    return found


def _compiled(name: str) -> int:
    return named(name, lambda: text(name) or "", [name])[name]


def text(name: str) -> str | None:
    """Return the module that defines the function of a symbol; `None` if the library does not have
    it."""
    parsed = _known(name)
    return None if parsed is None else module_of(*parsed).text()


def _known(name: str) -> tuple[str, str] | None:
    """Return the operation and the element type of a symbol."""
    op, _, dtype = name.removeprefix("shardir_").rpartition("_")
    is_valid = name.startswith("shardir_") and op in BODIES and dtype in LANES
    return (op, dtype) if is_valid else None


def module_of(op_name: str, dtype: str) -> Module:
    """Return the module that defines a function."""
    arity, body = BODIES[op_name]
    type = vector(ELEMENTS[dtype], LANES[dtype])
    module = Module()
    function = Function(module, f"shardir_{op_name}_{dtype}", [type] * arity, type)
    if dtype == "f64" or op_name not in BY_DOUBLE:
        result = body(*function.params, grade=dtype)
    else:
        wide = vector("double", LANES[dtype])
        result = body(*(x.to(wide, "fpext") for x in function.params), grade="short")
        result = result.to(type, "fptrunc")
    function.leave(result)
    return module


def call(function: Function, op_name: str, dtype: str, *args: Value) -> Value:
    """Declare and call a function on vectors of any number of lanes; return as many lanes as `args`
    have.

    More lanes than a call takes are split; fewer are padded with copies. Raises `KeyError` for a
    function that the library does not have.
    """
    if symbol(op_name, dtype) is None:
        raise KeyError(f"the library has no {op_name} of {dtype}")
    width, count = LANES[dtype], lanes(args[0].type)
    if function.module.inlined and is_written_in(op_name, dtype):
        width *= max(1, min(abreast(), count // width))
        name = _written_in(function.module, op_name, dtype, width)
    else:
        name = _declare(function.module, op_name, dtype)
    return _called(function, name, dtype, width, args)


def is_written_in(op_name: str, dtype: str) -> bool:
    """Return whether a function may be inlined into kernels."""
    return op_name not in BY_DOUBLE and (op_name not in LONG or dtype == "f32")


def _declare(module: Module, op_name: str, dtype: str) -> str:
    """Declare a function, which the module then imports, and return its symbol."""
    name, type = f"shardir_{op_name}_{dtype}", vector(ELEMENTS[dtype], LANES[dtype])
    module.declare(name, type, [type] * BODIES[op_name][0], "nounwind")
    return name


def _called(function: Function, name: str, dtype: str, width: int, args: Sequence[Value]) -> Value:
    """Call a function of `width` lanes on vectors of any number of lanes."""
    count, type = lanes(args[0].type), vector(ELEMENTS[dtype], width)
    pieces = []
    for start in range(0, count, width):
        taken = [start + i % min(width, count - start) for i in range(width)]
        piece = [_taken(function, arg, taken) for arg in args]
        pieces.append(function.call(name, piece, type))
    return _joined(function, pieces, count)


def _written_in(module: Module, op_name: str, dtype: str, width: int) -> str:
    """Define a function in a module that LLVM inlines into its callers; return its name.

    Inlining saves a quarter of the time of a short function, since its constants stay in registers;
    rare arguments are still handled by a call.
    """
    name = f"{symbol(op_name, dtype)}_within_{width}"
    if any(each.name == name for each in module.functions):
        return name
    arity, body = BODIES[op_name]
    type = vector(ELEMENTS[dtype], width)
    f = Function(module, name, [type] * arity, type, "nounwind alwaysinline", internal=True)

    def call_out_of_line() -> Value:
        return _called(f, _declare(module, op_name, dtype), dtype, LANES[dtype], f.params)

    f.apart = call_out_of_line
    f.leave(body(*f.params, grade=dtype))
    return name


def _taken(function: Function, arg: Value, taken: list[int]) -> Value:
    """Return some lanes as a vector of its own."""
    if lanes(arg.type) == 1:
        return function.splat(arg, len(taken))
    if taken == list(range(lanes(arg.type))):
        return arg
    return function.shuffle(arg, arg, taken)


def _joined(function: Function, pieces: list[Value], count: int) -> Value:
    """Return the first `count` lanes of the concatenated pieces."""
    while len(pieces) > 1:
        if len(pieces) % 2:
            pieces.append(pieces[-1])
        width = 2 * lanes(pieces[0].type)
        pairs = zip(pieces[::2], pieces[1::2], strict=True)
        pieces = [function.shuffle(a, b, range(width)) for a, b in pairs]
    (whole,) = pieces
    if count == 1:
        kind = element(whole.type)
        return function.emit(f"extractelement {whole.type} {whole}, i64 0", kind)
    if count == lanes(whole.type):
        return whole
    return function.shuffle(whole, whole, range(count))
