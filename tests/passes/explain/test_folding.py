"""Repeated layers are shown once in the text of explanations."""

from shardir.passes.explain import communication, conflicts, coverage, explain
from shardir.passes.explain.report_rows import fold_rows, without_names, without_numbers
from shardir.passes.pipeline import DEFAULT_PIPELINE, Pipeline
from shardir.text.parser import parse

LAYERS = 24


def deep_program() -> str:
    """Return equal layers; layer 5 has another operation."""
    params = ",\n".join(
        f"  %w.{i}: f32[64, 64@model],\n  %v.{i}: f32[64@model, 64]" for i in range(LAYERS)
    )
    lines = []
    for i in range(LAYERS):
        activation = "sin" if i == 5 else "tanh"
        lines += [
            f'  %a.{i} = dot(%x.{i}, %w.{i}, dims="bi,ih->bh") : f32[32, 64]',
            f"  %h.{i} = {activation}(%a.{i}) : f32[32, 64]",
            f'  %y.{i} = dot(%h.{i}, %v.{i}, dims="bh,ho->bo") : f32[32, 64]',
            f"  %x.{i + 1} = add(%x.{i}, %y.{i}) : f32[32, 64]",
        ]
    body = "\n".join(lines)
    return (
        "mesh @grid = [data=2, model=4]\n\n"
        f"func @deep(\n  %x.0: f32[32@data, 64],\n{params}\n) -> (f32[32, 64]) {{\n"
        f"{body}\n  return %x.{LAYERS}\n}}\n"
    )


MODULE = parse(deep_program())


def test_a_path_shows_the_steps_of_a_layer_once() -> None:
    text = str(explain(MODULE, f"%a.{LAYERS - 1}"))
    assert text.splitlines()[2:8] == [
        "data shards dimension 0",
        "  stated by argument %x.0: f32[32@data, 64]",
        "  %x.0 -> %x.1     forwards through %x.1 = add   along dimension 0 of %x.0  round 1",
        "  such steps x 23",
        "  %x.23 -> %a.23   forwards through %a.23 = dot  along 'b'                  round 2",
        "",
    ]


def test_collectives_that_differ_in_names_are_one_row() -> None:
    text = str(communication(Pipeline.parse(DEFAULT_PIPELINE)(MODULE)))
    assert text.splitlines()[0] == "24 collectives, 144.0 KiB sent by each device in one run"
    assert text.splitlines()[-1].split("  ")[1] == "%y.0 x 24"
    assert "more" not in text


def test_unsharded_dimensions_of_layers_are_one_row() -> None:
    text = str(coverage(MODULE))
    assert "  %w.0 x 24 " in text
    assert "  %v.0 x 24 " in text


def test_conflicts_of_layers_are_one_row() -> None:
    module = parse(deep_program().replace("%x.0: f32[32@data, 64]", "%x.0: f32[32@data, 64@model]"))
    rows = conflicts(module).rows
    lines = str(conflicts(module)).splitlines()
    assert len(rows) > 3 * len([line for line in lines if " = " in line])


def test_few_rows_stay_separate() -> None:
    rows = ["%a.1 = dot", "%b = dot", "%c = sin"]
    assert fold_rows(rows, without_names) == [(row, (row,)) for row in rows]
    assert fold_rows([*rows, "%d = dot"], without_names) == [
        ("%a.1 = dot", ["%a.1 = dot", "%b = dot", "%d = dot"]),
        ("%c = sin", ("%c = sin",)),
    ]


def test_names_with_quotes_and_dots() -> None:
    text = '%"a b".1 of %layers.12.w: f32[8, 16]'
    assert without_names(text) == "%.1 of %: f32[8, 16]"
    assert without_numbers(text) == '%"a b".1 of %layers.#.w: f32[8, 16]'
