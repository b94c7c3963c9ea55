"""The library of vector math functions; each function is compiled when it is first needed.

A function has the LLVM signature `VEC NAME(VEC, ...)`, where VEC is `<LANES x float>` or `<LANES x
double>`. Functions are out of line, so that a kernel with five of them compiles in the time of one
without any; and wide, so that a call costs little. Each is straight-line code over all its lanes
(selects, no branches), except for the rare arguments that docs/numerics.md names.
"""

from collections.abc import Iterable, Mapping, Sequence
from threading import RLock

from shardir.backends.cpu.codegen.compiler import compile_cached
from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    element_type,
    lane_count,
    vector_type,
)
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernels.math import (
    error_function,
    exponential,
    gamma,
    hyperbolic_tangent,
    inverse_trigonometric,
    logarithm,
    power,
    trigonometric,
)
from shardir.backends.cpu.kernels.math.lookup_tables import (
    has_permutations,
    has_register_tables,
)
from shardir.backends.cpu.kernels.math.vector_arithmetic import FunctionTable

FUNCTION_LANES = {"f32": 16, "f64": 8}
"""The number of elements of a call."""

LLVM_ELEMENT_TYPES = {"f32": "float", "f64": "double"}
FUNCTION_BODIES: FunctionTable = {
    **exponential.FUNCTIONS,
    **hyperbolic_tangent.FUNCTIONS,
    **logarithm.FUNCTIONS,
    **trigonometric.FUNCTIONS,
    **inverse_trigonometric.FUNCTIONS,
    **power.FUNCTIONS,
    **error_function.FUNCTIONS,
    **gamma.FUNCTIONS,
}
"""The number of operands of each function, and the emitter of its instructions."""
COMPUTED_IN_DOUBLE = ("erf_inv", "lgamma", "digamma", "rem", "sin_ln2", "cos_ln2")
"""Functions that are computed in f64 for f32 and rounded once. They are long, and never inlined."""
COMPUTED_IN_DOUBLE_WITHOUT_PERMUTATIONS = ("erfc",)
"""Further ones of machines that cannot look up tables in registers."""
NOT_INLINED_IN_DOUBLE = ("sin", "cos", "tan")
"""Functions that are not inlined in f64: their reduction of large arguments is long."""

FUNCTIONS_WITH_TABLES = frozenset(
    {*hyperbolic_tangent.FUNCTIONS, *logarithm.FUNCTIONS, "erf", "pow"}
)
"""Functions that mostly look up f32 numbers in tables, with AVX-512."""

_function_addresses: dict[tuple[HostDescription, str], int] = {}
_compile_lock = RLock()


def inlined_vector_count(ops: Iterable[str], dtype: str, machine: HostDescription) -> int:
    """Return how many vectors inlined functions process at once.

    More vectors hide the latency of dependent steps, and use a loaded table for several vectors,
    but LLVM arranges the instructions of fewer vectors better. On a Zen 4 (AVX-512), four vectors
    instead of two reduce the time of tanh, erf and log1p by 4 to 7 % (log takes 2 % longer), and
    two instead of four that of exponentials, sines, logistic and erfc by 2 to 11 % (atan takes 3 %
    longer).
    """
    if not has_register_tables(machine):
        return 2
    return 2 if dtype == "f32" and not FUNCTIONS_WITH_TABLES.issuperset(ops) else 4


def symbol_of_op(op_name: str, dtype: str) -> str | None:
    """Return the symbol of an operation on f32 or f64; `None` if the library does not have it."""
    if op_name not in FUNCTION_BODIES or dtype not in FUNCTION_LANES:
        return None
    return f"shardir_{op_name}_{dtype}"


def all_symbols() -> tuple[str, ...]:
    """Return all symbols, in a fixed order."""
    return tuple(f"shardir_{op}_{dtype}" for op in FUNCTION_BODIES for dtype in FUNCTION_LANES)


def imported_symbols(module: LLVMModule) -> tuple[str, ...]:
    """Return the library symbols that a module declares, which its kernel imports."""
    declared = "\n".join(module.declarations)
    return tuple(name for name in all_symbols() if f"@{name}(" in declared)


def function_addresses(
    machine: HostDescription, names: Iterable[str] | None = None
) -> Mapping[str, int]:
    """Return the addresses of functions (`None`: all), compiled or loaded from disk on demand.

    Names that are not of this library are left out.
    """
    found = {}
    for name in all_symbols() if names is None else names:
        if _parse_symbol(name) is not None:
            with _compile_lock:
                if (machine, name) not in _function_addresses:
                    _function_addresses[machine, name] = _compile_function(name, machine)
            found[name] = _function_addresses[machine, name]
    return found


def _compile_function(name: str, machine: HostDescription) -> int:
    return compile_cached(machine, name, lambda: function_text(name, machine) or "", [name])[name]


def function_text(name: str, machine: HostDescription) -> str | None:
    """Return the module that defines the function of a symbol; `None` if the library does not have
    it."""
    parsed = _parse_symbol(name)
    return None if parsed is None else function_module(*parsed, machine).text()


def _parse_symbol(name: str) -> tuple[str, str] | None:
    """Return the operation and the element type of a symbol."""
    op, _, dtype = name.removeprefix("shardir_").rpartition("_")
    is_valid = name.startswith("shardir_") and op in FUNCTION_BODIES and dtype in FUNCTION_LANES
    return (op, dtype) if is_valid else None


def function_module(op_name: str, dtype: str, machine: HostDescription) -> LLVMModule:
    """Return the module that defines a function."""
    arity, body = FUNCTION_BODIES[op_name]
    type = vector_type(LLVM_ELEMENT_TYPES[dtype], FUNCTION_LANES[dtype])
    module = LLVMModule(machine)
    function = LLVMFunction(module, f"shardir_{op_name}_{dtype}", [type] * arity, type)
    if dtype == "f64" or not is_computed_in_double(op_name, machine):
        result = body(*function.params, grade=dtype)
    else:
        wide = vector_type("double", FUNCTION_LANES[dtype])
        result = body(*(x.to(wide, "fpext") for x in function.params), grade="short")
        result = result.to(type, "fptrunc")
    function.ret(result)
    return module


def call_function(function: LLVMFunction, op_name: str, dtype: str, *args: LLVMValue) -> LLVMValue:
    """Declare and call a function on vectors of any number of lanes; return as many lanes as `args`
    have.

    More lanes than a call takes are split; fewer are padded with copies. Raises `KeyError` for a
    function that the library does not have.
    """
    if symbol_of_op(op_name, dtype) is None:
        raise KeyError(f"the library has no {op_name} of {dtype}")
    width, count = FUNCTION_LANES[dtype], lane_count(args[0].type)
    if function.module.inlined and is_inlinable(op_name, dtype, function.machine):
        most = inlined_vector_count([op_name], dtype, function.machine)
        width *= max(1, min(most, count // width))
        name = _define_inline(function.module, op_name, dtype, width)
    else:
        name = _declare_function(function.module, op_name, dtype)
    return _call_by_parts(function, name, dtype, width, args)


def is_computed_in_double(op_name: str, machine: HostDescription) -> bool:
    """Return whether a function of f32 is computed in f64."""
    return op_name in COMPUTED_IN_DOUBLE or (
        op_name in COMPUTED_IN_DOUBLE_WITHOUT_PERMUTATIONS and not has_permutations(machine)
    )


def is_inlinable(op_name: str, dtype: str, machine: HostDescription) -> bool:
    """Return whether a function may be inlined into kernels."""
    if dtype == "f32":
        return not is_computed_in_double(op_name, machine)
    return op_name not in (
        *COMPUTED_IN_DOUBLE,
        *COMPUTED_IN_DOUBLE_WITHOUT_PERMUTATIONS,
        *NOT_INLINED_IN_DOUBLE,
    )


def _declare_function(module: LLVMModule, op_name: str, dtype: str) -> str:
    """Declare a function, which the module then imports, and return its symbol."""
    name, type = (
        f"shardir_{op_name}_{dtype}",
        vector_type(LLVM_ELEMENT_TYPES[dtype], FUNCTION_LANES[dtype]),
    )
    module.declare(name, type, [type] * FUNCTION_BODIES[op_name][0], "nounwind")
    return name


def _call_by_parts(
    function: LLVMFunction, name: str, dtype: str, width: int, args: Sequence[LLVMValue]
) -> LLVMValue:
    """Call a function of `width` lanes on vectors of any number of lanes."""
    count, type = lane_count(args[0].type), vector_type(LLVM_ELEMENT_TYPES[dtype], width)
    pieces = []
    for start in range(0, count, width):
        taken = [start + i % min(width, count - start) for i in range(width)]
        piece = [_take_lanes(function, arg, taken) for arg in args]
        pieces.append(function.call(name, piece, type))
    return _concatenate_lanes(function, pieces, count)


def _define_inline(module: LLVMModule, op_name: str, dtype: str, width: int) -> str:
    """Define a function in a module that LLVM inlines into its callers; return its name.

    Inlining saves a quarter of the time of a short function, since its constants stay in registers;
    rare arguments are still handled by a call.
    """
    name = f"{symbol_of_op(op_name, dtype)}_within_{width}"
    if any(each.name == name for each in module.functions):
        return name
    arity, body = FUNCTION_BODIES[op_name]
    type = vector_type(LLVM_ELEMENT_TYPES[dtype], width)
    f = LLVMFunction(module, name, [type] * arity, type, "nounwind alwaysinline", internal=True)

    def call_out_of_line() -> LLVMValue:
        return _call_by_parts(
            f, _declare_function(module, op_name, dtype), dtype, FUNCTION_LANES[dtype], f.params
        )

    f.cold_path = call_out_of_line
    f.ret(body(*f.params, grade=dtype))
    return name


def _take_lanes(function: LLVMFunction, arg: LLVMValue, taken: list[int]) -> LLVMValue:
    """Return some lanes as a vector of its own."""
    if lane_count(arg.type) == 1:
        return function.splat(arg, len(taken))
    if taken == list(range(lane_count(arg.type))):
        return arg
    return function.shuffle(arg, arg, taken)


def _concatenate_lanes(function: LLVMFunction, pieces: list[LLVMValue], count: int) -> LLVMValue:
    """Return the first `count` lanes of the concatenated pieces."""
    while len(pieces) > 1:
        if len(pieces) % 2:
            pieces.append(pieces[-1])
        width = 2 * lane_count(pieces[0].type)
        pairs = zip(pieces[::2], pieces[1::2], strict=True)
        pieces = [function.shuffle(a, b, range(width)) for a, b in pairs]
    (whole,) = pieces
    if count == 1:
        kind = element_type(whole.type)
        return function.emit(f"extractelement {whole.type} {whole}, i64 0", kind)
    if count == lane_count(whole.type):
        return whole
    return function.shuffle(whole, whole, range(count))
