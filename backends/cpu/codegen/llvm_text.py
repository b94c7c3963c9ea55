"""Build LLVM IR as text, one instruction at a time.

A function appends instructions; each returns a value, which is a register with its type. Control
flow is written with `with` blocks. Variables are stack slots that LLVM promotes to registers, so
that no phi is written by hand. Text is faster to build than `llvmlite.ir` (a kernel takes a fifth
of a millisecond), and the input of the compiler is readable.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Union, final

from shardir.backends.cpu.codegen.target import HostDescription

Operand = Union["LLVMValue", int, float]
"""An operand: a value, or a Python number that becomes a constant of the other operand's type."""

FLOAT_TYPES = ("half", "bfloat", "float", "double")
NONTEMPORAL = "!nontemporal !{i32 1}"
UNLIKELY_BRANCH_WEIGHTS = '!prof !{!"branch_weights", i32 1, i32 2000}'


def vector_type(type: str, lanes: int) -> str:
    """Return the type of `lanes` elements of `type`; of one lane the type itself."""
    return type if lanes == 1 else f"<{lanes} x {type}>"


@cache
def element_type(type: str) -> str:
    """Return the element type of a vector type; of another type the type itself."""
    return type.split(" x ")[1][:-1] if type.startswith("<") else type


@cache
def lane_count(type: str) -> int:
    """Return the number of elements of a type."""
    return int(type[1:].split(" ")[0]) if type.startswith("<") else 1


def literal(type: str, number: int | float) -> str:
    """Return a constant as text; of a vector type a splat. Floats are exact."""
    if type[0] == "i":
        return str(int(number))
    kind = element_type(type)
    if kind == "double" or kind == "float":
        exact = float(number)
        if kind == "float":
            (exact,) = struct.unpack("f", struct.pack("f", exact))
        one = f"0x{struct.unpack('Q', struct.pack('d', exact))[0]:016X}"
    elif kind in FLOAT_TYPES:
        raise TypeError(f"{kind} constants are made from float constants")
    elif kind == "ptr":
        one = "null" if not number else f"inttoptr (i64 {int(number)} to ptr)"
    else:
        one = str(int(number))
    if kind == type:
        return one
    return f"splat ({kind} {one})"


@final
class LLVMValue:
    """A register or a constant of a function, with its LLVM type."""

    __slots__ = ("function", "text", "type")

    def __init__(self, text: str, type: str, function: "LLVMFunction") -> None:
        self.text, self.type, self.function = text, type, function

    def __str__(self) -> str:
        return self.text

    def _binary(self, integer: str, real: str, other: Operand) -> "LLVMValue":
        f = self.function
        name = real if element_type(self.type) in FLOAT_TYPES else integer
        return f.emit(f"{name} {self.type} {self.text}, {f.text_of(other, self.type)}", self.type)

    def __add__(self, other: Operand) -> "LLVMValue":
        return self._binary("add", "fadd", other)

    def __sub__(self, other: Operand) -> "LLVMValue":
        return self._binary("sub", "fsub", other)

    def __mul__(self, other: Operand) -> "LLVMValue":
        return self._binary("mul", "fmul", other)

    def __truediv__(self, other: Operand) -> "LLVMValue":
        return self._binary("sdiv", "fdiv", other)

    def __floordiv__(self, other: Operand) -> "LLVMValue":
        """Return the unsigned quotient."""
        return self._binary("udiv", "fdiv", other)

    def __mod__(self, other: Operand) -> "LLVMValue":
        """Return the unsigned remainder."""
        return self._binary("urem", "frem", other)

    def __and__(self, other: Operand) -> "LLVMValue":
        return self._binary("and", "and", other)

    def __or__(self, other: Operand) -> "LLVMValue":
        return self._binary("or", "or", other)

    def __xor__(self, other: Operand) -> "LLVMValue":
        return self._binary("xor", "xor", other)

    def __radd__(self, other: int | float) -> "LLVMValue":
        return self + other

    def __rsub__(self, other: int | float) -> "LLVMValue":
        return self.function.value(other, self.type) - self

    def __rmul__(self, other: int | float) -> "LLVMValue":
        return self * other

    def __rtruediv__(self, other: int | float) -> "LLVMValue":
        return self.function.value(other, self.type) / self

    def __neg__(self) -> "LLVMValue":
        if element_type(self.type) in FLOAT_TYPES:
            return self.function.emit(f"fneg {self.type} {self}", self.type)
        return self.function.value(0, self.type) - self

    def __invert__(self) -> "LLVMValue":
        return self ^ -1

    def __lshift__(self, other: Operand) -> "LLVMValue":
        return self._binary("shl", "shl", other)

    def __rshift__(self, other: Operand) -> "LLVMValue":
        """Shift right logically: zeros are shifted in."""
        return self._binary("lshr", "lshr", other)

    def is_(self, predicate: str, other: Operand) -> "LLVMValue":
        """Compare with a predicate, such as `slt` for integers and `olt` for floats."""
        f, kind = self.function, element_type(self.type)
        name = "fcmp" if kind in FLOAT_TYPES else "icmp"
        text = f"{name} {predicate} {self.type} {self.text}, {f.text_of(other, self.type)}"
        return f.emit(text, vector_type("i1", lane_count(self.type)))

    def to(self, type: str, how: str) -> "LLVMValue":
        """Convert to a type by an instruction such as `sext`, `fptosi` or `bitcast`."""
        return self.function.emit(f"{how} {self.type} {self} to {type}", type)


@final
class StackVariable:
    """A stack slot of one type, which LLVM promotes to a register."""

    __slots__ = ("address", "type")

    def __init__(self, address: LLVMValue, type: str) -> None:
        self.address, self.type = address, type

    def get(self) -> LLVMValue:
        return self.address.function.load(self.address, self.type)

    def set(self, value: Operand) -> None:
        f = self.address.function
        f.store(f.value(value, self.type), self.address)


@dataclass
class LLVMModule:
    """Functions that are compiled together, and the declarations of external functions.

    `machine` describes the machine that the instructions are selected for. `inlined` means that
    vector math functions are inlined into the module, not called.
    """

    machine: HostDescription
    functions: list["LLVMFunction"] = field(default_factory=list)
    declarations: dict[str, None] = field(default_factory=dict)
    tables: dict[str, str] = field(default_factory=dict)
    inlined: bool = False

    def declare(self, name: str, result: str, params: Sequence[str], attributes: str = "") -> None:
        """Declare an external function; repeated declarations have no effect."""
        text = f"declare {result} @{name}({', '.join(params)}) {attributes}".rstrip()
        self.declarations.setdefault(text)

    def table(self, name: str, type: str, numbers: Sequence[int]) -> None:
        """Define constant integers in memory at `@name`; repeated definitions have no effect."""
        listed = ", ".join(f"{type} {number}" for number in numbers)
        text = f"@{name} = internal constant [{len(numbers)} x {type}] [{listed}], align 64"
        self.tables.setdefault(name, text)

    def text(self) -> str:
        """Return the module as LLVM assembly."""
        parts = [
            *self.tables.values(),
            *sorted(self.declarations),
            *(each.text() for each in self.functions),
        ]
        return "\n".join(parts)


@final
class LLVMFunction:
    """A function of a module; instructions are appended at its end.

    `params` are its parameter types. An `internal` function is visible in its module only.
    `cold_path`, if set, computes rare results out of line, so that their code is not emitted
    inline.
    """

    def __init__(
        self,
        module: LLVMModule,
        name: str,
        params: Sequence[str],
        result: str = "void",
        attributes: str = "nounwind",
        internal: bool = False,
    ) -> None:
        self.module, self.name, self.result = module, name, result
        self.cold_path: Callable[[], LLVMValue] | None = None
        self._attributes, self._internal = attributes, internal
        self._slots: list[str] = []
        self._lines: list[str] = []
        self._count = 0
        self._declared = list(params)
        self.params = [
            LLVMValue(f"%a{i}", each.split(" noalias")[0].split(" readonly")[0], self)
            for i, each in enumerate(params)
        ]
        module.functions.append(self)

    @property
    def machine(self) -> HostDescription:
        """The machine that the instructions are selected for."""
        return self.module.machine

    # Instructions.

    def value(self, given: Operand, type: str) -> LLVMValue:
        """Return a value unchanged, and a Python number as a constant of `type`."""
        return (
            given if isinstance(given, LLVMValue) else LLVMValue(literal(type, given), type, self)
        )

    def text_of(self, given: Operand, type: str) -> str:
        """Return the text of a value, or of a Python number as a constant of `type`."""
        return given.text if isinstance(given, LLVMValue) else literal(type, given)

    def emit(self, text: str, type: str) -> LLVMValue:
        """Append an instruction that has a result of `type`."""
        self._count += 1
        name = f"%t{self._count}"
        self._lines.append(f"  {name} = {text}")
        return LLVMValue(name, type, self)

    def do(self, text: str) -> None:
        """Append an instruction without a result."""
        self._lines.append(f"  {text}")

    def variable(self, type: str, initial: Operand | None = None) -> StackVariable:
        """Allocate a stack slot for values of `type`, 64-byte aligned."""
        self._count += 1
        name = f"%s{self._count}"
        self._slots.append(f"  {name} = alloca {type}, align 64")
        result = StackVariable(LLVMValue(name, "ptr", self), type)
        if initial is not None:
            result.set(initial)
        return result

    def offset(self, address: LLVMValue, index: Operand, type: str = "i8") -> LLVMValue:
        """Return the address `index` elements of `type` after `address`; by default bytes."""
        at = self.text_of(index, "i64")
        return self.emit(f"getelementptr {type}, ptr {address.text}, i64 {at}", "ptr")

    def load(self, address: LLVMValue, type: str, align: int | None = None) -> LLVMValue:
        """Load a value; `align` in bytes overrides the alignment of the type."""
        more = f", align {align}" if align else ""
        return self.emit(f"load {type}, ptr {address.text}{more}", type)

    def store(
        self,
        value: LLVMValue,
        address: LLVMValue,
        align: int | None = None,
        streaming: bool = False,
    ) -> None:
        """Store a value; `streaming` stores are non-temporal and need full alignment."""
        more = f", align {align}" if align else ""
        more += f", {NONTEMPORAL}" if streaming else ""
        self.do(f"store {value.type} {value.text}, ptr {address.text}{more}")

    def select(self, condition: LLVMValue, yes: Operand, no: Operand) -> LLVMValue:
        """Return `yes` where the condition holds and `no` elsewhere; one of them may be a
        number."""
        type = (
            yes.type
            if isinstance(yes, LLVMValue)
            else no.type
            if isinstance(no, LLVMValue)
            else "i64"
        )
        a, b = self.value(yes, type), self.value(no, type)
        return self.emit(f"select {condition.type} {condition}, {type} {a}, {type} {b}", type)

    def call(self, name: str, args: Sequence[LLVMValue], result: str = "void") -> LLVMValue:
        """Call a function by name, or through the text of a register that holds its address."""
        target = name if name[0] == "%" else f"@{name}"
        text = f"call {result} {target}({', '.join([f'{a.type} {a.text}' for a in args])})"
        if result == "void":
            self.do(text)
            return LLVMValue("void", "void", self)
        return self.emit(text, result)

    def intrinsic(self, name: str, *args: LLVMValue, result: str | None = None) -> LLVMValue:
        """Call `llvm.NAME` overloaded on the type of the first operand, and declare it."""
        type = args[0].type
        full = f"llvm.{name}.{_suffix(type)}"
        self.module.declare(full, result or type, [a.type for a in args])
        return self.call(full, args, result or type)

    def fma(self, a: LLVMValue, b: Operand, c: Operand) -> LLVMValue:
        """Return `a * b + c`, rounded once."""
        return self.intrinsic("fma", a, self.value(b, a.type), self.value(c, a.type))

    def splat(self, value: LLVMValue, count: int) -> LLVMValue:
        """Return a vector with the value in all lanes."""
        if count == 1:
            return value
        type = vector_type(value.type, count)
        first = self.emit(f"insertelement {type} poison, {value.type} {value}, i64 0", type)
        zeros = f"<{count} x i32> zeroinitializer"
        return self.emit(f"shufflevector {type} {first}, {type} poison, {zeros}", type)

    def shuffle(self, a: LLVMValue, b: LLVMValue, lanes_taken: Sequence[int]) -> LLVMValue:
        """Select lanes of two vectors; lanes of `b` are numbered after those of `a`."""
        mask = ", ".join(f"i32 {lane}" for lane in lanes_taken)
        text = f"shufflevector {a.type} {a}, {b.type} {b}, <{len(lanes_taken)} x i32> <{mask}>"
        return self.emit(text, vector_type(element_type(a.type), len(lanes_taken)))

    def umin(self, a: LLVMValue, b: Operand) -> LLVMValue:
        """Return the minimum of two unsigned integers."""
        other = self.value(b, a.type)
        return self.select(a.is_("ult", other), a, other)

    def ret(self, value: LLVMValue | None = None) -> None:
        """Return from the function; every function ends with this."""
        self.do("ret void" if value is None else f"ret {value.type} {value}")

    # Control flow.

    @contextmanager
    def loop(
        self, start: Operand, stop: Operand, step: Operand = 1, type: str = "i64"
    ) -> Iterator[LLVMValue]:
        """Run the block for each value from `start` to `stop` (exclusive) in steps of `step`."""
        i = self.variable(type, start)
        with self.while_(lambda: i.get().is_("slt", stop)):
            now = i.get()
            yield now
            i.set(now + step)

    @contextmanager
    def while_(self, going: Callable[[], LLVMValue]) -> Iterator[None]:
        """Run the block while `going`, evaluated before each iteration, is true."""
        head, body, end = self._label("head"), self._label("body"), self._label("end")
        self.do(f"br label %{head}")
        self._start(head)
        self.do(f"br i1 {going()}, label %{body}, label %{end}")
        self._start(body)
        yield
        self.do(f"br label %{head}")
        self._start(end)

    @contextmanager
    def when(self, condition: LLVMValue, seldom: bool = False) -> Iterator[None]:
        """Run the block if the condition holds; `seldom` marks the branch as unlikely."""
        body, end = self._label("then"), self._label("end")
        weights = f", {UNLIKELY_BRANCH_WEIGHTS}" if seldom else ""
        self.do(f"br i1 {condition}, label %{body}, label %{end}{weights}")
        self._start(body)
        yield
        self.do(f"br label %{end}")
        self._start(end)

    def if_else(
        self, condition: LLVMValue, yes: Callable[[], None], no: Callable[[], None]
    ) -> None:
        """Emit both branches of a condition."""
        first, second, end = self._label("then"), self._label("else"), self._label("end")
        self.do(f"br i1 {condition}, label %{first}, label %{second}")
        for label, branch in ((first, yes), (second, no)):
            self._start(label)
            branch()
            self.do(f"br label %{end}")
        self._start(end)

    def _label(self, hint: str) -> str:
        self._count += 1
        return f"{hint}{self._count}"

    def _start(self, label: str) -> None:
        self._lines.append(f"{label}:")

    def text(self) -> str:
        """Return the function as LLVM assembly."""
        params = ", ".join(f"{t} %a{i}" for i, t in enumerate(self._declared))
        linkage = "internal " if self._internal else ""
        head = f"define {linkage}{self.result} @{self.name}({params}) {self._attributes} {{"
        return "\n".join([head, "entry:", *self._slots, *self._lines, "}", ""])


def _suffix(type: str) -> str:
    """Return the overload suffix of a type in the name of an intrinsic."""
    short = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64", "ptr": "p0"}
    kind = element_type(type)
    one = short.get(kind, kind)
    return one if kind == type else f"v{lane_count(type)}{one}"


def add_outlined_function(
    module: LLVMModule, name: str, params: Sequence[str], result: str = "void"
) -> LLVMFunction:
    """Add a function that kernels of the module call, and return it.

    Vectors that it spills do not cross cache lines; by default LLVM guarantees this for variables
    only.
    """
    return LLVMFunction(module, name, params, result, "nounwind noinline alignstack(64)", True)
