"""Python numbers as arguments of programs: write them to memory that a program reads.

    write_number(number, kind, cell) -> i1

A number that does not fit is left to Python, which raises the error.
"""

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule, LLVMValue
from shardir.backends.cpu.dispatch.python_api import python_object

ARGUMENT_KINDS = (
    "array",
    "constant",
    "entering",
    "numpy",
    "bytes",
    "bool",
    "i32",
    "i64",
    "f32",
    "f64",
)
"""The kinds of arguments: an array, constant memory, a NumPy array to import, a NumPy array or
`bytes` read in place, or a Python number to convert to a type."""


def define_write_number(module: LLVMModule) -> None:
    """Define `write_number`."""
    params = ["ptr", "i64", "ptr"]
    f = LLVMFunction(module, "write_number", params, "i1", "nounwind", internal=True)
    number, kind, cell = f.params
    good = f.variable("i1", 0)

    def whole() -> None:
        over = f.variable("i32", 0)
        found = f.call("PyLong_AsLongLongAndOverflow", [number, over.address], "i64")
        short = found.to("i32", "trunc")
        long = kind.is_("eq", ARGUMENT_KINDS.index("i64"))
        fits = over.get().is_("eq", 0) & (long | short.to("i64", "sext").is_("eq", found))
        with f.when(fits):
            f.if_else(long, lambda: f.store(found, cell), lambda: f.store(short, cell))
            good.set(f.value(1, "i1"))

    def real() -> None:
        found = f.call("PyFloat_AsDouble", [number], "double")

        def short() -> None:
            rounded = found.to("float", "fptrunc")
            f.store(rounded, cell)
            # Python raises the error for a value that only rounding makes infinite.
            infinite = _is_infinite(rounded.to("double", "fpext")) & (_is_infinite(found) ^ 1)
            good.set(infinite ^ 1)

        def long() -> None:
            f.store(found, cell)
            good.set(f.value(1, "i1"))

        f.if_else(kind.is_("eq", ARGUMENT_KINDS.index("f32")), short, long)

    def truth() -> None:
        yes = number.is_("eq", python_object(f, "true"))
        f.store(yes.to("i8", "zext"), cell)
        good.set(f.value(1, "i1"))

    def other() -> None:
        f.if_else(kind.is_("eq", ARGUMENT_KINDS.index("bool")), truth, whole)

    f.if_else(kind.is_("sge", ARGUMENT_KINDS.index("f32")), real, other)
    f.ret(good.get())


def _is_infinite(number: LLVMValue) -> LLVMValue:
    bits = number.to("i64", "bitcast") & 0x7FFFFFFFFFFFFFFF
    return bits.is_("eq", 0x7FF0000000000000)
