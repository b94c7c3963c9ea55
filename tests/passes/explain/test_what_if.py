"""`what_if` parses annotations, compares the propagated shardings, and rejects invalid ones."""

import pytest

from shardir.errors import ParseError
from shardir.ir.module import Module
from shardir.passes.explain import ExplainError, conflicts, explain, what_if
from shardir.passes.explain.annotation_edits import changes
from shardir.passes.pipeline import DEFAULT_PIPELINE, Pipeline
from shardir.text.parser import parse
from tests.passes.explain.programs import LOOP, MLP

EMPTY = "func @f(%x: f32[8]) -> (f32[8]) {\n  return %x\n}\n"
TWO_MESHES = """\
mesh @m = [a=2]
mesh @n = [a=2, b=2]
func @f(%x: f32[8@a], %y: f32[8]) -> (f32[8], f32[8]) {
  return %x, %y
}
func @g(%z: f32[8@a]) -> (f32[8]) {
  %w = neg(%z) : f32[8]
  return %w
}
"""


@pytest.fixture
def mlp() -> Module:
    return parse(MLP)


def test_an_unchanged_annotation_changes_no_sharding(mlp: Module) -> None:
    before = str(mlp)

    result = what_if(mlp, ["%w1: f32[128, 256@model]"])

    assert result.changes == ()
    assert result.before == result.after
    assert str(mlp) == before


def test_a_report_without_changes_states_the_shardings_of_the_edited_values(mlp: Module) -> None:
    result = what_if(mlp, ["%a: f32[64@data, 256@model]", "%y: f32[64, 128]"])

    assert str(result).split("\n\n")[1] == (
        "every value is sharded as before\n"
        "  %a is f32[64@data, 256@model] before and after the change\n"
        "  %y is f32[64@-, 128@data] before and after the change"
    )


INDIVISIBLE = """\
mesh @m = [x=4, y=2]
func @f(%a: f32[18@y, 8], %b: f32[8, 17]) -> (f32[18, 17]) {
  %c = dot(%a, %b, dims="ik,kj->ij") : f32[18, 17]
  return %c
}
"""


@pytest.mark.parametrize(
    ("annotation", "told"),
    [
        (
            "%a: f32[18@(y, x), 8]",
            """\
%a has another sharding than stated: f32[18@y, 8@-]
  x does not shard it
    dimension 0: the axis does not divide a dimension of an argument or a result
      18 is not divisible by 8""",
        ),
        (
            "%a: f32[18@x, 8]",
            """\
%a has another sharding than stated: f32[18@x:(1)2, 8@-]
  x:(2)2 does not shard it
    dimension 0: the axis does not divide a dimension of an argument or a result
      18 is not divisible by 4""",
        ),
        (
            "result 0: f32[18, 17@x]",
            """\
result 0 has another sharding than stated: f32[18@y, 17@-]
  x does not shard it
    dimension 1: the axis does not divide a dimension of an argument or a result
      17 is not divisible by 4""",
        ),
    ],
)
def test_a_stated_axis_that_is_absent_has_a_reason(annotation: str, told: str) -> None:
    result = what_if(parse(INDIVISIBLE), [annotation])

    assert str(result).split("\n\n")[:2] == [annotation, told]
    assert result.unchanged == ()


def test_a_stated_axis_that_shards_the_dimension_has_no_reason() -> None:
    result = what_if(parse(INDIVISIBLE), ["%a: f32[18@x:(2)2, 8]", "%c: f32[18, 17@y]"])

    assert result.refused == ()


def test_several_edits_apply_together(mlp: Module) -> None:
    result = what_if(mlp, ["%w2: f32[256, 128]"], without=["%x", "%w1"])

    assert result.edits == ("%w2: f32[256, 128]", "without %x", "without %w1")
    assert result.changes
    assert all("@data" not in c.after and "@model" not in c.after for c in result.changes)
    assert result.after.count == 0


def test_a_value_in_a_block_can_be_annotated() -> None:
    result = what_if(parse(LOOP), ["%d: f32[8, 4@b]"])

    assert ("%d", "f32[8@a, 4@b]") in [(c.value, c.after) for c in result.changes]


def test_function_argument_selects_the_function() -> None:
    assert [c.value for c in what_if(parse(TWO_MESHES), without=["%z"], function="@g").changes] == [
        "%z",
        "%w",
        "result 0",
    ]
    assert explain(parse(TWO_MESHES), "%w", function="g").chains[0].annotation.name == "%z"


def test_result_states_the_partitioning_error() -> None:
    result = what_if(parse(TWO_MESHES), ["%y: f32[8@b] on @n"])

    assert result.after.error == (
        "@f has values on the meshes @m and @n; a program runs on one mesh: state the sharding of "
        "the argument %y on @m"
    )
    assert "after: @f has values on the meshes" in str(result)


@pytest.mark.parametrize("name", ["%b1", "result 0"])
def test_a_removal_without_an_annotation_is_an_error(mlp: Module, name: str) -> None:
    with pytest.raises(ExplainError) as error:
        what_if(mlp, without=[name])

    assert str(error.value) == (
        f"{name} has no annotation to remove; `shardir explain` without options lists the "
        "annotations"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("%w3: f32[256, 128]", "@mlp has no value called '%w3'; did you mean '%w2'?"),
        (
            "%w2: f32[2, 2]",
            "%w2 is f32[256, 128], not f32[2, 2]; only its sharding can be changed",
        ),
        (" : ", "' : ' is not an annotation; write it as %w: f32[128, 256@model]"),
        ("%w2", "'%w2' is not an annotation; write it as %w: f32[128, 256@model]"),
        (
            "%unlike: f32[64, 128]",
            "@mlp has no value called '%unlike'; `shardir opt` prints the program with all names",
        ),
        (
            "%x: f32[64, 128], %w1: f32[128, 256]",
            "'%x: f32[64, 128], %w1: f32[128, 256]' has several annotations; write only the first "
            "one",
        ),
        ("result 3: f32[64, 128]", "@mlp has no result 3; its only result is result 0"),
    ],
)
def test_mismatched_annotation_is_an_error(mlp: Module, text: str, message: str) -> None:
    with pytest.raises(ExplainError) as error:
        what_if(mlp, [text])

    assert str(error.value) == message


def test_parse_error_points_into_the_annotation(mlp: Module) -> None:
    with pytest.raises(ParseError) as error:
        what_if(mlp, ["%w2: f32[256@modle, 128]"])

    assert (
        str(error.value)
        == """\
mesh @grid has no axis called 'modle'; did you mean 'model'?
 --> <annotation>:1:14
  |
1 | %w2: f32[256@modle, 128]
  |              ^^^^^"""
    )


def test_a_string_is_not_a_list_of_annotations(mlp: Module) -> None:
    for options in ({"annotations": "%w2: f32[256, 128]"}, {"without": "%w2"}):
        with pytest.raises(ExplainError) as error:
            what_if(mlp, **options)  # type: ignore[arg-type]

        assert str(error.value) == (
            "annotations must be a list, such as ['%w: f32[128, 256@model]']"
        )


@pytest.mark.parametrize(
    ("name", "hint"),
    [("@mpl", "did you mean 'mlp'?"), ("unlike", "there is @mlp")],
)
def test_an_annotation_of_an_unknown_function_is_an_error(
    mlp: Module, name: str, hint: str
) -> None:
    with pytest.raises(ExplainError) as error:
        what_if(mlp, ["%x: f32[64@data, 128]"], function=name)

    assert str(error.value) == f"no function is called {name.removeprefix('@')!r}; {hint}"


def test_open_and_closed_dimensions_are_no_difference() -> None:
    """Other axes are, and a sharding where there was none."""
    text = "mesh @m = [a=2]\nfunc @f(%x: f32[8{}]) -> (f32[8{}]) {{\n  return %x\n}}\n"
    stated = {name: parse(text.format(name, name)) for name in ("", "@a", "@a?", "@-", "@?")}
    for same in ((), ("@a", "@a?"), ("@-", "@?")):
        for one in same:
            for other in same:
                assert changes(stated[one], stated[other]) == []
    for one, other in (("", "@a"), ("@a?", ""), ("@a?", "@-"), ("@?", "@a")):
        found = changes(stated[one], stated[other])
        assert [each.value for each in found] == ["%x", "result 0"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (EMPTY, "the program has no mesh, so nothing in it is sharded"),
        ("", "there is no function to explain"),
        (
            str(Pipeline.parse(DEFAULT_PIPELINE)(parse(MLP))),
            "@mlp has been partitioned; explain the program before that",
        ),
    ],
)
def test_unexplainable_program_is_an_error(text: str, message: str) -> None:
    with pytest.raises(ExplainError) as error:
        conflicts(parse(text))

    assert str(error.value) == message


def test_unknown_function_or_value_is_an_error(mlp: Module) -> None:
    with pytest.raises(ExplainError) as error:
        explain(mlp, "hh")
    assert str(error.value) == "@mlp has no value called 'hh'; did you mean '%h'?"

    with pytest.raises(ExplainError) as error:
        explain(mlp, "%hidden")
    assert str(error.value) == (
        "@mlp has no value called '%hidden'; `shardir opt` prints the program with all names"
    )

    with pytest.raises(ExplainError) as error:
        explain(mlp, "%h", function="mpl")
    assert str(error.value) == "no function is called 'mpl'; did you mean 'mlp'?"


@pytest.mark.parametrize(
    ("text", "message", "mark"),
    [
        ("%w2: f32[", "'[' is not closed; write ']' before the end of the text", "        ^"),
        ("%w2:", "unexpected end of text, expected a type such as f32[64, 128]", "    ^"),
        ("result 0: f32[64", "'[' is not closed; write ']' before the end of the text",
         "             ^"),
        ("%w2: f32[256, 128] x", "unexpected 'x', expected ',' or 'of'", "                   ^"),
    ],
)  # fmt: skip
def test_errors_of_an_annotation_mention_no_text_around_it(
    mlp: Module, text: str, message: str, mark: str
) -> None:
    with pytest.raises(ParseError) as error:
        what_if(mlp, [text])

    column = len(mark)
    assert (
        str(error.value) == f"{message}\n --> <annotation>:1:{column}\n  |\n1 | {text}\n  | {mark}"
    )
