"""Edit the annotations of a program, and compare the shardings of two versions of it."""

from dataclasses import replace

from shardir.errors import ParseError, suggest_name
from shardir.ir.builder import substitute
from shardir.ir.module import Function, Module, Value
from shardir.ir.sharding import Sharding
from shardir.ir.types import TensorType
from shardir.passes.explain.propagated_program import ExplainError, result_number
from shardir.passes.explain.propagation_history.history import RESULT_PREFIX, value_text
from shardir.passes.explain.reports import Change
from shardir.passes.rewriting import all_values
from shardir.text.literals import format_name
from shardir.text.parser import parse
from shardir.text.printer import Printer, print_mesh
from shardir.text.syntax import IrSource


def add_annotation(module: Module, text: str, function: str | None = None) -> Module:
    """Return the module with one annotation added or replaced."""
    name, type, sharding = read_annotation(module, text)
    return _with_sharding(module, name, function, type, sharding)


def remove_annotation(module: Module, name: str, function: str | None = None) -> Module:
    """Return the module without the annotation of a value or result."""
    return _with_sharding(module, name.strip(), function, None, None)


def read_annotation(module: Module, text: str) -> tuple[str, TensorType, Sharding | None]:
    """Return the value that an annotation names, its type, and its sharding on the meshes of the
    program."""
    name, colon, _ = text.partition(":") if isinstance(text, str) else ("", "", "")
    name = name.strip()
    if not colon or not name:
        raise ExplainError(f"{text!r} is not an annotation; write it as %w: f32[128, 256@model]")
    meshes = "\n".join(map(print_mesh, module.meshes))
    written = text.replace(name, "%x", 1) if not name.startswith("%") else text
    try:
        # The text around the annotation would be a part of the errors about its syntax.
        IrSource(written, "").check_params()
        body = parse(f"{meshes}\nfunc @f(\n{written}\n) -> () {{ return }}").main.body
    except ParseError as error:
        message, *lines = str(error).split("\n")
        column = error.column + len(text) - len(written)
        width = lines[-1].count("^")
        raise ParseError(message, text, 1, column, width, "<annotation>") from None
    if len(body.params) != 1:
        raise ExplainError(f"{text!r} has several annotations; write only the first one")
    (value,) = body.params
    return name, value.type, value.sharding


def _with_sharding(
    module: Module,
    name: str,
    function: str | None,
    type: TensorType | None,
    sharding: Sharding | None,
) -> Module:
    """Return the module with a sharding on a value or result; `type`, if given, must be its
    type."""
    old = _function(module, function)
    if name.startswith(RESULT_PREFIX):
        new = _with_result(old, name, type, sharding)
    else:
        value = _value(old, name)
        _check_removable(name, value.sharding, type)
        _check(name, value.type, type)
        body = substitute(old.body, {value: replace(value, sharding=sharding)})
        new = replace(old, body=body)
    functions = tuple(new if each is old else each for each in module.functions)
    return replace(module, functions=functions)


def _with_result(
    function: Function, name: str, type: TensorType | None, sharding: Sharding | None
) -> Function:
    number = result_number(function, name)
    results = list(function.result_shardings)
    _check_removable(name, results[number], type)
    _check(name, function.body.returns[number].type, type)
    results[number] = sharding
    return replace(function, result_shardings=tuple(results))


def _function(module: Module, name: str | None) -> Function:
    if name is None:
        return module.main
    functions = {function.name: function for function in module.functions}
    bare = name.removeprefix("@")
    if bare not in functions:
        hint = (
            suggest_name(bare, functions)
            or f"there is {', '.join('@' + each for each in functions)}"
        )
        raise ExplainError(f"no function is called {bare!r}; {hint}")
    return functions[bare]


def _value(function: Function, name: str) -> Value:
    values = {value_text(value): value for value in all_values(function.body)}
    key = name if name.startswith("%") else f"%{format_name(name)}"
    if key not in values:
        hint = suggest_name(key, values) or "`shardir opt` prints the program with all names"
        raise ExplainError(f"@{function.name} has no value called {name!r}; {hint}")
    return values[key]


def _check(name: str, has: TensorType, given: TensorType | None) -> None:
    if given is not None and given != has:
        raise ExplainError(f"{name} is {has}, not {given}; only its sharding can be changed")


def _check_removable(name: str, has: Sharding | None, given: TensorType | None) -> None:
    if has is None and given is None:
        raise ExplainError(
            f"{name} has no annotation to remove; `shardir explain` without options lists the "
            "annotations"
        )


def changes(old: Module, new: Module) -> list[Change]:
    """Return the values, and function results, whose shardings differ between two modules."""
    show_old, show_new = Printer(old.meshes).sharded_type, Printer(new.meshes).sharded_type
    result = []
    for before, after in zip(old.functions, new.functions, strict=True):
        values = {value.name: value for value in all_values(after.body)}
        pairs = [(value_text(v), v.type, v.sharding, values[v.name].sharding)
                 for v in all_values(before.body) if v.name in values]  # fmt: skip
        for i, value in enumerate(before.body.returns):
            pairs.append(
                (
                    f"{RESULT_PREFIX}{i}",
                    value.type,
                    before.result_shardings[i],
                    after.result_shardings[i],
                )
            )
        result += [
            Change(name, before.name, show_old(type, a), show_new(type, b))
            for name, type, a, b in pairs
            if a != b and (a and a.close()) != (b and b.close())
        ]
    return result
