"""Functions that random programs call, and the text of programs with calls.

A call is an opaque operation with the text of the call: the functions are separate until the text
of the complete program is read.
"""

import re
from dataclasses import replace
from typing import Any

from shardir import ops as ops  # declares the operations
from shardir.frontend.random_programs.reduction import remove_dead_operations
from shardir.ir.module import Function, Module, Value
from shardir.passes.rewriting import all_values
from shardir.stablehlo.printer import show
from shardir.stablehlo.writing.attributes import format_tensor
from shardir.verify.verifier import mesh_axes
from tests.shardy.random_programs.program_builder import ProgramBuilder

CALL = "func.call"
CONSTANT_KINDS = ("unary", "binary", "broadcast", "reshape", "slice")
"""Operations of which constants make constants."""


def call(m: ProgramBuilder) -> Any:
    """Add a call of a function that is called already, or of a new one.

    The calls of some functions have constant operands only, and are copied for each use.
    """
    if m.chance(0.25):
        function, operands = _function(m, constant=True)
        m.functions.append(function)
    elif (callable_here := [f for f in m.functions if not _uses_axes(m, f)]) and m.chance(0.4):
        function = m.random.choice(callable_here)
        params = function.body.params
        operands = [m.like(p.type.shape) if p.type.dtype == "f32" and p.type.rank
                    else _argument(m, p) for p in params]  # fmt: skip
        operands[-1] = _argument(m, params[-1])
    else:
        function, operands = _function(m)
        m.functions.append(function)
    types = tuple(value.type for value in function.body.returns)
    listed = ", ".join(format_tensor(value.type) for value in operands)
    return m.b.opaque(
        *operands,
        operation=CALL,
        head=f"{CALL} @{function.name}({', '.join('%' for _ in operands)})",
        attributes="",
        types=f": ({listed}) -> ({', '.join(map(format_tensor, types))})",
        result=types if len(types) > 1 else types[0],
    )


def _function(m: ProgramBuilder, *, constant: bool = False) -> tuple[Function, list[Value]]:
    """Return a new function, which uses all its parameters, and the arguments of its first call.

    If they are `constant`, the function has only operations that make constants of them.
    """

    def argument(value: Value) -> Value:
        return m.constant(value.type) if constant else _argument(m, value)

    operands = [m.any() for _ in range(m.random.randint(1, 3))]
    if constant:
        operands = [argument(value) for value in operands]
    last = argument(m.any())
    params = [
        Value(x.type, m.names.fresh("a"), m.sharding(x.type.shape) if m.chance(0.3) else None)
        for x in (*operands, last)
    ]
    options = replace(m.options, size=m.random.randint(1, 5), groups=False)
    if constant:
        options = replace(options, kinds=CONSTANT_KINDS, constraints=False)
    inner = ProgramBuilder(
        m.random, options, m.meshes, m.names, [], m.depth + 1, {}, m.local, m.functions, m.single
    )
    inner.pool = [*params, *params]
    inner.run()
    returns = [inner.any() for _ in range(m.random.randint(0, 2))]
    returns.append(inner.b.neg(params[-1]))
    body = remove_dead_operations(inner.b.block(params, returns))
    used = {v for op in body.walk() for v in op.uses()} | set(body.returns)
    passed = dict(zip(params, (*operands, last), strict=True))
    passed |= {param: argument(param) for param in inner.params}
    kept = [p for p in (*inner.params, *params) if p in used]
    body = replace(body, params=tuple(kept))
    results = tuple(m.sharding(v.type.shape) if m.chance(0.2) else None for v in returns)
    return Function(m.names.fresh("f"), body, results), [passed[p] for p in kept]


def _uses_axes(m: ProgramBuilder, function: Function) -> bool:
    """Return whether a function or one that it calls states axes that are manual in the caller,
    where values are local along them.
    """
    if not m.local:
        return False
    stated = [v.sharding for v in all_values(function.body)] + [*function.result_shardings]
    names = {axis.name for s in stated if s for axis in (*s.used_axes(), *s.replicated)}
    names |= {a.name for op in function.body.walk() for a in mesh_axes(op.attrs.get("axes"))}
    called = {
        op.attrs["head"].split("@")[1].split("(")[0]
        for op in function.body.walk()
        if op.name == "opaque" and op.attrs["operation"] == CALL
    }
    return not names.isdisjoint(m.local) or any(
        _uses_axes(m, other) for other in m.functions if other.name in called
    )


def _argument(m: ProgramBuilder, param: Value) -> Value:
    made = replace(param, name=m.names.fresh("p"), sharding=None)
    m.params.append(made)
    return made


def text_of(module: Module) -> str:
    """Return the text of a program that calls private functions."""
    return re.sub(r"func\.func @(?!main\()", "func.func private @", show(module, locations=True))


def call_numbers(module: Module) -> set[int]:
    """Return the numbers of the calls in a numbered module."""
    return {
        op.loc.line
        for function in module.functions
        for op in function.body.walk()
        if op.name == "opaque" and op.attrs["operation"] == CALL and op.loc
    }
