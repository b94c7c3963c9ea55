"""The parameters and results of a program that is called, which passes of extensions must keep."""

from shardir.errors import PipelineError
from shardir.ir.module import Function, Module
from shardir.passes.pipeline import PASSES, Pass
from shardir.plugins.entry_points import OWN_ORIGIN


def check_interface(step: Pass, before: Module, after: Module, seconds: float = 0.0) -> None:
    """Raise `PipelineError` if a pass of an extension changed the parameters or the results of the
    main function; a `PassObserver`.

    The caller passes the arguments of the program before all passes, so that the program would
    read and write the memory of arrays with other shapes.
    """
    if PASSES.origin(step.name) == OWN_ORIGIN:
        return
    for noun, describe in (("parameters", _describe_parameters), ("results", _describe_results)):
        old, new = describe(before.main), describe(after.main)
        if old != new:
            raise PipelineError(
                f"pass {step.name!r} changed the {noun} of @{before.main.name} from ({old}) to "
                f"({new}); the passes of a program that is called must keep them"
            )


def _describe_parameters(function: Function) -> str:
    params, spmd = function.body.params, function.spmd
    types = [each.type for each in (params if spmd is None else spmd.params)]
    return ", ".join(f"%{value.name}: {type}" for value, type in zip(params, types, strict=True))


def _describe_results(function: Function) -> str:
    values = function.body.returns if function.spmd is None else function.spmd.results
    return ", ".join(str(each.type) for each in values)
