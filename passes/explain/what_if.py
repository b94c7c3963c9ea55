"""Effects of adding, changing or removing annotations."""

from collections.abc import Sequence
from dataclasses import replace

from shardir.cost.communication import list_collectives, name_counted_function
from shardir.errors import ParseError, PartitionError, suggest_name
from shardir.ir.builder import substitute
from shardir.ir.module import Function, Module, Value
from shardir.ir.sharding import Sharding
from shardir.ir.types import TensorType
from shardir.passes.explain.explained_pipeline import ExplainedPipeline
from shardir.passes.explain.history import RESULT_PREFIX, value_text
from shardir.passes.explain.propagated_program import (
    ExplainError,
    Program,
    module_of,
    pipeline_of,
    result_number,
)
from shardir.passes.explain.reports import Change, Difference, Traffic
from shardir.passes.pipeline import Pipeline
from shardir.passes.propagation.propagate import Propagate
from shardir.passes.rewriting import all_values
from shardir.text.literals import format_name
from shardir.text.parser import parse
from shardir.text.printer import Printer, print_mesh


def what_if(
    program: Program,
    annotations: Sequence[str] = (),
    *,
    without: Sequence[str] = (),
    function: str | None = None,
    propagate: Propagate | None = None,
    pipeline: str | None = None,
) -> Difference:
    """Return the changes that other annotations would cause.

    `annotations` are written as in the text of the program, `%w: f32[128, 256@model]`, or `result
    0: f32[64@data]`; they replace existing ones. `without` names values (`%w`) and results whose
    annotations are removed. `pipeline` and `propagate` are those of `explain`. Raises
    `ExplainError` for an unknown value, `ParseError` for an annotation that cannot be parsed.
    """
    module = module_of(program)
    if isinstance(annotations, str) or isinstance(without, str):
        raise ExplainError("annotations must be a list, such as ['%w: f32[128, 256@model]']")
    changed = module
    for text in annotations:
        changed = add_annotation(changed, text, function)
    for name in without:
        changed = remove_annotation(changed, name, function)
    edits = (*annotations, *(f"without {name}" for name in without))
    return difference(module, changed, edits, pipeline_of(program, pipeline, propagate))


def add_annotation(module: Module, text: str, function: str | None = None) -> Module:
    """Return the module with one annotation added or replaced."""
    name, colon, _ = text.partition(":") if isinstance(text, str) else ("", "", "")
    if not colon or not name.strip():
        raise ExplainError(f"{text!r} is not an annotation; write it as %w: f32[128, 256@model]")
    type, sharding = _read(module, text, name.strip())
    return _with_sharding(module, name.strip(), function, type, sharding)


def remove_annotation(module: Module, name: str, function: str | None = None) -> Module:
    """Return the module without the annotation of a value or result."""
    return _with_sharding(module, name.strip(), function, None, None)


def _read(module: Module, text: str, name: str) -> tuple[TensorType, Sharding | None]:
    """Parse the type of an annotation with the program's meshes."""
    meshes = "\n".join(map(print_mesh, module.meshes))
    written = text.replace(name, "%x", 1) if not name.startswith("%") else text
    try:
        body = parse(f"{meshes}\nfunc @f(\n{written}\n) -> () {{ return }}").main.body
    except ParseError as error:
        message, *lines = str(error).split("\n")
        column = error.column + len(text) - len(written)
        width = lines[-1].count("^")
        raise ParseError(message, text, 1, column, width, "<annotation>") from None
    if len(body.params) != 1:
        raise ExplainError(f"{text!r} has several annotations; write only the first one")
    (value,) = body.params
    return value.type, value.sharding


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


def difference(
    before: Module, after: Module, edits: Sequence[str], pipeline: ExplainedPipeline
) -> Difference:
    """Return the values with different shardings, and the communication of both programs."""
    old, new = pipeline.decide(before), pipeline.decide(after)
    paid = communication_totals(old, pipeline), communication_totals(new, pipeline)
    return Difference(tuple(edits), tuple(changes(old, new)), *paid)


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


def communication_totals(decided: Module, pipeline: ExplainedPipeline) -> Traffic:
    """Return the communication of a program whose shardings are decided, after partitioning."""
    try:
        program = Pipeline(pipeline.partitioning)(decided)
    except PartitionError as error:
        return Traffic((), str(error))
    return count_traffic(program)


def count_traffic(program: Module) -> Traffic:
    """Return the communication of a partitioned program by kind."""
    kinds: dict[str, tuple[int, int]] = {}
    for each in list_collectives(program):
        times = each.executions if each.executions is not None else 1
        count, nbytes = kinds.get(each.kind, (0, 0))
        kinds[each.kind] = (count + times, nbytes + times * each.nbytes)
    return Traffic(
        tuple((kind, *total) for kind, total in sorted(kinds.items())),
        counted=name_counted_function(program),
    )
