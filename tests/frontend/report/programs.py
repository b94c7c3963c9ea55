"""Programs for tests of reports."""

from functools import cache

import numpy as np

import shardir as sd
from shardir.frontend.report.build import ReportInput
from shardir.frontend.report.program_report import ProgramReport, report
from shardir.passes.pipeline import DEFAULT_PIPELINE
from shardir.text.definition_locations import find_definition_locations
from shardir.text.parser import parse
from tests.passes.explain.programs import MLP

DOT = """\
mesh @m = [x=4]

func @f(%a: f32[8, 16@x], %b: f32[16@x, 32]) -> (f32[8@x, 32]) {
  %y = dot(%a, %b, dims="bi,io->bo") : f32[8, 32]
  return %y
}
"""
LAYERS = 12


def report_of_text(text: str, name: str = "program.ir") -> ProgramReport:
    """Return the report of a program in IR text."""
    return report(
        ReportInput(
            parse(text, name),
            DEFAULT_PIPELINE,
            places=find_definition_locations(text, name),
            sources={name: text},
        )
    )


@cache
def mlp_report() -> ProgramReport:
    return report_of_text(MLP, "mlp.ir")


def deep_text(layers: int = LAYERS, odd_layer: int | None = None) -> str:
    """Return a program of equal layers; `odd_layer` has another operation."""
    params = "".join(
        f"  %w{i}: f32[64, 64@model],\n  %v{i}: f32[64@model, 64],\n" for i in range(layers)
    )
    lines = []
    for i in range(layers):
        name = "sin" if i == odd_layer else "tanh"
        lines += [
            f'  %a{i} = dot(%x{i}, %w{i}, dims="bi,ih->bh") : f32[32, 64]',
            f"  %h{i} = {name}(%a{i}) : f32[32, 64]",
            f'  %y{i} = dot(%h{i}, %v{i}, dims="bh,ho->bo") : f32[32, 64]',
            f"  %x{i + 1} = add(%x{i}, %y{i}) : f32[32, 64]",
        ]
    body = "\n".join(lines)
    return (
        f"mesh @grid = [data=2, model=4]\n\nfunc @deep(\n  %x0: f32[32@data, 64],\n{params}"
        f") -> (f32[32, 64]) {{\n{body}\n  return %x{layers}\n}}\n"
    )


@cache
def profiled_report() -> ProgramReport:
    """Return the report of a compiled function with the profile of a run."""
    x, w = np.ones((512, 512), "float32"), np.ones((512, 512), "float32")
    compiled = jitted.lower(x, w).compile()
    return compiled.report(profile=sd.profile(compiled, x, w, runs=1))


@sd.jit
def jitted(x: sd.Array, w: sd.Array) -> sd.Array:
    hidden = x @ w
    scaled: sd.Array = hidden * 2
    return scaled
