"""Compile functions of a small subset of Python to native code with LLVM.

The subset has integers, floating-point numbers and one-dimensional arrays of them, `if`, `while`,
`for ... in range(...)`, arithmetic, comparisons, `and`, `or`, `not`, conditional expressions, `min`
and `max` of two numbers, `int`, `float`, module constants and calls of other kernels. Parameters
are annotated `int`, `float`, `Ints`, `Floats`, or with a record: a `NamedTuple` of arrays. Results
are `int` or `float`. Without llvmlite, the functions run as Python on NumPy arrays, with the same
results.

A kernel must not receive one array as two parameters, and indices are not checked.
"""

import ast
import ctypes
import inspect
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

LLVM_TYPES = {"int": "i64", "float": "double", "bool": "i1", "Ints": "ptr", "Floats": "ptr"}
C_TYPES: dict[str, Any] = {
    "int": ctypes.c_int64,
    "float": ctypes.c_double,
    "Ints": ctypes.c_void_p,
    "Floats": ctypes.c_void_p,
}
ARRAYS = {"Ints": ("int", np.dtype(np.int64)), "Floats": ("float", np.dtype(np.float64))}
INT_OPERATIONS = {ast.Add: "add nsw", ast.Sub: "sub nsw", ast.Mult: "mul nsw"}
FLOAT_OPERATIONS = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}
COMPARISONS = {
    ast.Lt: ("slt", "olt"),
    ast.LtE: ("sle", "ole"),
    ast.Gt: ("sgt", "ogt"),
    ast.GtE: ("sge", "oge"),
    ast.Eq: ("eq", "oeq"),
    ast.NotEq: ("ne", "une"),
}
# Kernels compute with infinities, and never with NaN: this permits vectorized minima.
FLOAT_FLAGS = "nnan nsz"

Kernel = Callable[..., Any]
Value = tuple[str, str]
"""The type and the LLVM operand of an expression."""


def compile_kernels(functions: Sequence[Kernel]) -> dict[str, Kernel]:
    """Return the compiled functions by name; the functions themselves without llvmlite."""
    try:
        import llvmlite.binding as binding  # Start-up time; PyPy has no llvmlite.
    except ImportError:
        return {function.__name__: function for function in functions}
    signatures = {function.__name__: _signature(function) for function in functions}
    text = "\n".join(_FunctionEmitter(function, signatures).emit() for function in functions)
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    module = binding.parse_assembly(text)
    module.verify()
    machine = binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten(), opt=3
    )
    options = binding.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = True
    builder = binding.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    engine = binding.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    _engines.append(engine)
    return {
        name: _wrap(name, engine.get_function_address(name), *signature)
        for name, signature in signatures.items()
    }


_engines: list[Any] = []
"""Machine code stays in memory as long as its functions may be called."""


def _wrap(name: str, address: int, parameters: dict[str, str], result: str) -> Kernel:
    kinds = tuple(parameters.values())
    function = ctypes.CFUNCTYPE(C_TYPES[result], *(C_TYPES[kind] for kind in kinds))(address)
    dtypes = tuple(ARRAYS[kind][1] if kind in ARRAYS else None for kind in kinds)

    def call(*arguments: Any) -> Any:
        values: list[Any] = []
        for argument in arguments:
            values += argument if isinstance(argument, tuple) else (argument,)
        if len(values) != len(dtypes):
            raise TypeError(f"{name} takes {len(dtypes)} arguments, not {len(values)}")
        passed = []
        for argument, dtype in zip(values, dtypes, strict=True):
            if dtype is None:
                passed.append(argument)
            elif argument.dtype == dtype and argument.flags.c_contiguous:
                passed.append(argument.ctypes.data)
            else:
                raise TypeError(f"{name} takes contiguous arrays of {dtype}")
        return function(*passed)

    return call


def _signature(function: Kernel) -> tuple[dict[str, str], str]:
    """Return the types of the parameters, with the fields of records, and of the result."""
    kinds = {}
    for name, annotation in function.__annotations__.items():
        if hasattr(annotation, "_fields"):
            for field, kind in annotation.__annotations__.items():
                kinds[f"{name}.{field}"] = _kind_name(kind)
        else:
            kinds[name] = _kind_name(annotation)
    result = kinds.pop("return")
    return kinds, result


def _kind_name(annotation: Any) -> str:
    if annotation is Ints or annotation is Floats:
        return "Ints" if annotation is Ints else "Floats"
    return {int: "int", float: "float"}[annotation]


class _FunctionEmitter:
    """Write the LLVM text of one function. Variables are stack slots, which LLVM removes."""

    def __init__(self, function: Kernel, signatures: dict[str, tuple[dict[str, str], str]]) -> None:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        definition = tree.body[0]
        assert isinstance(definition, ast.FunctionDef)
        self.definition = definition
        self.constants = function.__globals__
        self.signatures = signatures
        self.parameters, self.result = signatures[function.__name__]
        self.kinds = dict(self.parameters)
        self.slots: list[str] = []
        self.lines: list[str] = []
        self.count = 0
        self.loops: list[tuple[str, str]] = []
        """The labels that `continue` and `break` of each enclosing loop go to."""

    def emit(self) -> str:
        declared = ", ".join(
            f"{LLVM_TYPES[kind]} {'noalias ' if kind in ARRAYS else ''}%{name}"
            for name, kind in self.parameters.items()
        )
        for name, kind in self.parameters.items():
            if kind not in ARRAYS:
                self._declare(name, kind)
                self._line(f"store {LLVM_TYPES[kind]} %{name}, ptr %{name}.slot")
        self._statements(self.definition.body)
        # Every function ends with `return`; the blocks after a `return` are not reachable.
        self._line("unreachable")
        body = "\n".join(["entry:", *self.slots, *self.lines])
        return (
            f"define {LLVM_TYPES[self.result]} @{self.definition.name}({declared}) {{\n{body}\n}}"
        )

    def _line(self, text: str) -> None:
        self.lines.append("  " + text)

    def _new(self, text: str) -> str:
        """Write an instruction and return the name of its result."""
        self.count += 1
        self._line(f"%.{self.count} = {text}")
        return f"%.{self.count}"

    def _labels(self, *names: str) -> list[str]:
        self.count += 1
        return [f"{name}.{self.count}" for name in names]

    def _begin_block(self, label: str) -> None:
        self.lines.append(f"{label}:")

    def _declare(self, name: str, kind: str) -> None:
        self.kinds[name] = kind
        self.slots.append(f"  %{name}.slot = alloca {LLVM_TYPES[kind]}")

    def _statements(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            self._statement(statement)

    def _statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign(targets=[target], value=value):
                self._assign(target, self._expression(value))
            case ast.AugAssign(target=target, op=operator, value=value):
                left = ast.copy_location(_as_load(target), target)
                self._assign(target, self._expression(ast.BinOp(left, operator, value)))
            case ast.If(test=test, body=body, orelse=other):
                then, otherwise, end = self._labels("then", "else", "endif")
                self._branch(test, then, otherwise)
                for label, block in ((then, body), (otherwise, other)):
                    self._begin_block(label)
                    self._statements(block)
                    self._line(f"br label %{end}")
                self._begin_block(end)
            case ast.While(test=test, body=body):
                head, inside, end = self._labels("while", "do", "done")
                self._line(f"br label %{head}")
                self._begin_block(head)
                self._branch(test, inside, end)
                self._begin_block(inside)
                self._loop_body(body, head, end)
                self._line(f"br label %{head}")
                self._begin_block(end)
            case ast.For(target=ast.Name(id=name), iter=ast.Call(args=bounds), body=body):
                self._for(name, [self._int(self._expression(bound)) for bound in bounds], body)
            case ast.Return(value=ast.expr() as value):
                result = self._convert(self._expression(value), self.result)
                self._line(f"ret {LLVM_TYPES[self.result]} {result}")
                self._begin_block(self._labels("unreachable")[0])
            case ast.Continue():
                self._jump(self.loops[-1][0])
            case ast.Break():
                self._jump(self.loops[-1][1])
            case ast.Expr(value=ast.Constant()):  # The docstring.
                pass
            case ast.Expr(value=value):
                self._expression(value)
            case _:
                raise TypeError(f"kernels have no {type(statement).__name__} statement")

    def _jump(self, label: str) -> None:
        self._line(f"br label %{label}")
        self._begin_block(self._labels("unreachable")[0])

    def _loop_body(self, body: Sequence[ast.stmt], again: str, end: str) -> None:
        self.loops.append((again, end))
        self._statements(body)
        self.loops.pop()

    def _for(self, name: str, bounds: list[str], body: Sequence[ast.stmt]) -> None:
        first, last = bounds if len(bounds) == 2 else ("0", bounds[0])
        head, inside, again, end = self._labels("for", "do", "next", "done")
        if name not in self.kinds:
            self._declare(name, "int")
        # As in Python, assignments to the variable in the loop do not change the iterations.
        counter = f"{name}.{self.count}"
        self._declare(counter, "int")
        self._line(f"store i64 {first}, ptr %{counter}.slot")
        self._line(f"br label %{head}")
        self._begin_block(head)
        now = self._new(f"load i64, ptr %{counter}.slot")
        condition = self._new(f"icmp slt i64 {now}, {last}")
        self._line(f"br i1 {condition}, label %{inside}, label %{end}")
        self._begin_block(inside)
        self._line(f"store i64 {now}, ptr %{name}.slot")
        self._loop_body(body, again, end)
        self._line(f"br label %{again}")
        self._begin_block(again)
        following = self._new(f"add nsw i64 {now}, 1")
        self._line(f"store i64 {following}, ptr %{counter}.slot")
        self._line(f"br label %{head}")
        self._begin_block(end)

    def _assign(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            if target.id not in self.kinds:
                self._declare(target.id, "int" if value[0] == "bool" else value[0])
            kind = self.kinds[target.id]
            converted = self._convert(value, kind)
            self._line(f"store {LLVM_TYPES[kind]} {converted}, ptr %{target.id}.slot")
        else:
            assert isinstance(target, ast.Subscript)
            kind, place = self._element(target)
            converted = self._convert(value, kind)
            self._line(f"store {LLVM_TYPES[kind]} {converted}, ptr {place}")

    def _element(self, subscript: ast.Subscript) -> Value:
        """Return the type and the address of an element of an array."""
        name = ast.unparse(subscript.value)
        kind = ARRAYS[self.kinds[name]][0]
        index = self._int(self._expression(subscript.slice))
        place = self._new(f"getelementptr inbounds {LLVM_TYPES[kind]}, ptr %{name}, i64 {index}")
        return kind, place

    def _int(self, value: Value) -> str:
        return self._convert(value, "int")

    def _convert(self, value: Value, kind: str) -> str:
        given, operand = value
        if given == kind:
            return operand
        match given, kind:
            case "bool", "int":
                return self._new(f"zext i1 {operand} to i64")
            case "int", "float":
                return self._new(f"sitofp i64 {operand} to double")
            case "int", "bool":
                return self._new(f"icmp ne i64 {operand}, 0")
        raise TypeError(f"{self.definition.name} uses a value of type {given} as {kind}")

    def _branch(self, test: ast.expr, then: str, otherwise: str) -> None:
        """Go to `then` if `test` is true, and to `otherwise` if it is not."""
        match test:
            case ast.BoolOp(op=operator, values=values):
                for part in values[:-1]:
                    (following,) = self._labels("operand")
                    if isinstance(operator, ast.And):
                        self._branch(part, following, otherwise)
                    else:
                        self._branch(part, then, following)
                    self._begin_block(following)
                self._branch(values[-1], then, otherwise)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self._branch(operand, otherwise, then)
            case _:
                condition = self._convert(self._expression(test), "bool")
                self._line(f"br i1 {condition}, label %{then}, label %{otherwise}")

    def _expression(self, expression: ast.expr) -> Value:
        match expression:
            case ast.Constant(value=bool(value) | int(value)):
                return "int", str(int(value))
            case ast.Constant(value=float(value)):
                return "float", _float_text(value)
            case ast.Name() | ast.Attribute() if (name := ast.unparse(expression)) in self.kinds:
                kind = self.kinds[name]
                if kind in ARRAYS:
                    return kind, f"%{name}"
                return kind, self._new(f"load {LLVM_TYPES[kind]}, ptr %{name}.slot")
            case ast.Name(id=name):
                return self._expression(ast.Constant(self.constants[name]))
            case ast.Subscript():
                kind, place = self._element(expression)
                return kind, self._new(f"load {LLVM_TYPES[kind]}, ptr {place}")
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._binary(ast.Sub(), ("int", "0"), self._expression(operand))
            case ast.BinOp(left=left, op=operator, right=right):
                return self._binary(operator, self._expression(left), self._expression(right))
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                return self._compare(operator, self._expression(left), self._expression(right))
            case ast.IfExp(test=test, body=body, orelse=other):
                condition = self._convert(self._expression(test), "bool")
                return self._select(condition, self._expression(body), self._expression(other))
            case ast.Call(func=ast.Name(id=name), args=arguments):
                return self._call(
                    name, [value for each in arguments for value in self._values(each)]
                )
        raise TypeError(f"kernels have no expression {ast.unparse(expression)}")

    def _values(self, argument: ast.expr) -> list[Value]:
        """Return the value of an argument, or those of the fields of a record."""
        if isinstance(argument, ast.Name):
            fields = [name for name in self.parameters if name.startswith(argument.id + ".")]
            if fields:
                return [(self.parameters[name], f"%{name}") for name in fields]
        return [self._expression(argument)]

    def _operands(self, a: Value, b: Value) -> tuple[str, str, str]:
        kind = "float" if "float" in (a[0], b[0]) else "int"
        return kind, self._convert(a, kind), self._convert(b, kind)

    def _binary(self, operator: ast.operator, a: Value, b: Value) -> Value:
        kind, left, right = self._operands(a, b)
        if kind == "float":
            return kind, self._new(f"{FLOAT_OPERATIONS[type(operator)]} double {left}, {right}")
        if isinstance(operator, ast.FloorDiv | ast.Mod):  # Of operands that are not negative.
            name = "sdiv" if isinstance(operator, ast.FloorDiv) else "srem"
            return kind, self._new(f"{name} i64 {left}, {right}")
        return kind, self._new(f"{INT_OPERATIONS[type(operator)]} i64 {left}, {right}")

    def _compare(self, operator: ast.cmpop, a: Value, b: Value) -> Value:
        kind, left, right = self._operands(a, b)
        integer, floating = COMPARISONS[type(operator)]
        if kind == "float":
            return "bool", self._new(f"fcmp {FLOAT_FLAGS} {floating} double {left}, {right}")
        return "bool", self._new(f"icmp {integer} i64 {left}, {right}")

    def _select(self, condition: str, a: Value, b: Value) -> Value:
        kind, left, right = self._operands(a, b)
        flags = FLOAT_FLAGS if kind == "float" else ""
        kinds = LLVM_TYPES[kind]
        return kind, self._new(f"select {flags} i1 {condition}, {kinds} {left}, {kinds} {right}")

    def _call(self, name: str, arguments: list[Value]) -> Value:
        if name in ("min", "max"):
            a, b = arguments
            _, condition = self._compare(ast.Lt() if name == "min" else ast.Gt(), b, a)
            return self._select(condition, b, a)
        if name == "float":
            return "float", self._convert(arguments[0], "float")
        if name == "int":
            kind, operand = arguments[0]
            if kind == "float":
                return "int", self._new(f"fptosi double {operand} to i64")
            return "int", self._convert(arguments[0], "int")
        parameters, result = self.signatures[name]
        passed = ", ".join(
            f"{LLVM_TYPES[kind]} {self._convert(argument, kind)}"
            for kind, argument in zip(parameters.values(), arguments, strict=True)
        )
        return result, self._new(f"call {LLVM_TYPES[result]} @{name}({passed})")


def _as_load(target: ast.expr) -> ast.expr:
    if isinstance(target, ast.Name):
        return ast.Name(target.id, ast.Load())
    assert isinstance(target, ast.Subscript)
    return ast.Subscript(target.value, target.slice, ast.Load())


def _float_text(value: float) -> str:
    """Return a constant as its bits in hexadecimal digits, which LLVM reads exactly."""
    return f"0x{np.float64(value).view(np.uint64):016X}"
