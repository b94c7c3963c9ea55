"""Story files: sections, the check of each step, and updates."""

from pathlib import Path

import pytest

from shardir import testing
from shardir.errors import ParseError, PipelineError, ShardirError
from shardir.frontend.stories.story_files import find_stories, update_story
from shardir.frontend.stories.story_syntax import has_heading, join_sections, split_sections
from tests.frontend.stories.wrong_pass import pass_that_replaces_exp

FIRST = """\
// Equal operations are computed once.

func @f(
  %x: f32[4],
) -> (f32[4]) {
  %a = exp(%x) : f32[4]
  %b = exp(%x) : f32[4]
  %c = add(%a, %b) : f32[4]
  return %c
}
"""
SECOND = """\
func @f(
  %x: f32[4],
) -> (f32[4]) {
  %a = exp(%x) : f32[4]
  %c = add(%a, %a) : f32[4]
  return %c
}
"""
STORY = f"{FIRST}\n// ===== cse\n\n{SECOND}\n// ===== dce\n\n{SECOND}"
FORMER = STORY.replace("%c = add(%a, %a)", "%c = mul(%a, %a)", 1)
"""A story whose second section is not what the pipeline makes."""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("f.ir").write_text(STORY, encoding="utf-8")
    return Path("f.ir")


def test_steps_have_the_pipelines_and_lines_of_their_headings(file: Path) -> None:
    story = testing.read_story("f.ir")
    assert [(step.number, step.pipeline, step.line) for step in story.steps] == [
        (1, "cse", 12),
        (2, "dce", 22),
    ]
    story.check()
    assert story.regenerate() == STORY


@pytest.mark.parametrize("text", [STORY, FIRST])
def test_joined_sections_are_the_text(text: str) -> None:
    assert join_sections(split_sections(text)) == text


def test_an_empty_line_below_a_heading_is_optional(file: Path) -> None:
    file.write_text(STORY.replace("// ===== cse\n\n", "// =====  cse \n"), encoding="utf-8")
    story = testing.read_story(file)
    story.check()
    assert story.regenerate() == STORY


def test_another_program_is_shown_as_a_diff(file: Path) -> None:
    file.write_text(FORMER, encoding="utf-8")
    with pytest.raises(testing.StoryError) as caught:
        testing.read_story("f.ir").check()
    assert str(caught.value) == (
        "f.ir:12: step 1, 'cse', makes another program than the story shows\n"
        "--- story\n"
        "+++ result\n"
        "@@ -2,6 +2,6 @@\n"
        "   %x: f32[4],\n"
        " ) -> (f32[4]) {\n"
        "   %a = exp(%x) : f32[4]\n"
        "-  %c = mul(%a, %a) : f32[4]\n"
        "+  %c = add(%a, %a) : f32[4]\n"
        "   return %c\n"
        " }\n"
        "The first program and the new one compute the same results. If the new program is right, "
        "update the story: shardir test f.ir --update, or pytest --update-stories"
    )
    assert isinstance(caught.value, ShardirError)
    assert isinstance(caught.value, AssertionError)


def test_other_results_are_an_error_although_the_text_agrees(file: Path) -> None:
    file.write_text(f"{FIRST}\n// ===== replace-exp\n\n{FIRST.replace('exp(', 'sin(')}", "utf-8")
    with pass_that_replaces_exp(), pytest.raises(testing.StoryError) as caught:
        testing.read_story("f.ir").check()
    assert str(caught.value) == (
        "f.ir:12: step 1, 'replace-exp', makes a program that computes other results than the "
        "first program: result 0 differs (by 0.685, and 0.0002 is allowed)"
    )


def test_a_diff_states_that_the_results_differ_too(file: Path) -> None:
    file.write_text(f"{FIRST}\n// ===== replace-exp\n\n{FIRST}", "utf-8")
    with pass_that_replaces_exp(), pytest.raises(testing.StoryError) as caught:
        testing.read_story("f.ir").check()
    assert (
        "The first program and the new one compute other results "
        "(result 0 differs (by 0.685, and 0.0002 is allowed)). If"
    ) in str(caught.value)


def test_an_update_keeps_the_first_section_and_comments(file: Path) -> None:
    file.write_text(FORMER.replace("dce\n\n", "dce\n\n// Nothing is dead.\n\n"), encoding="utf-8")
    assert update_story(file)
    text = file.read_text(encoding="utf-8")
    assert text == STORY.replace("dce\n\n", "dce\n\n// Nothing is dead.\n\n")
    assert not update_story(file)
    assert [path.name for path in Path().iterdir()] == ["f.ir"]
    testing.read_story(file).check()


def test_a_parse_error_shows_the_line_of_the_file(file: Path) -> None:
    file.write_text(STORY.replace("%c = add(%a, %a)", "%c = addd(%a, %a)"), encoding="utf-8")
    with pytest.raises(ParseError) as caught:
        testing.read_story("f.ir").check()
    assert str(caught.value) == (
        "no operation is called 'addd'; did you mean 'add'?\n"
        "  --> f.ir:18:8\n"
        "   |\n"
        "18 |   %c = addd(%a, %a) : f32[4]\n"
        "   |        ^^^^"
    )


def test_an_unknown_pass_is_an_error(file: Path) -> None:
    file.write_text(STORY.replace("= cse", "= csee"), encoding="utf-8")
    with pytest.raises(PipelineError) as caught:
        testing.read_story("f.ir").check()
    assert str(caught.value) == "no pass is called 'csee'; did you mean 'cse'?"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            FIRST.encode(),
            "f.ir has no step; write a heading such as '// ===== propagate' above the program "
            "after each pipeline",
        ),
        (b"\xff", "cannot read 'f.ir': it is not UTF-8 text"),
        (None, "cannot read 'f.ir': No such file or directory"),
        (b"// ===== cse\n\n", "f.ir:1: this section has no function"),
        (
            f"{FIRST}// ===== cse\n".encode(),
            f"f.ir:{FIRST.count(chr(10)) + 2}: this section has no function; the option --update "
            "of `shardir test` writes the program after each pipeline",
        ),
    ],
)
def test_a_file_without_a_story_is_an_error(
    file: Path, content: bytes | None, message: str
) -> None:
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(testing.StoryError) as caught:
        testing.read_story("f.ir").check()
    assert str(caught.value) == message


def test_stories_are_found_in_visible_folders(file: Path) -> None:
    for name in ("sub/g.ir", ".hidden/h.ir"):
        Path(name).parent.mkdir()
        Path(name).write_text(STORY, "utf-8")
    Path("other.ir").write_text(FIRST + "// =====\n// ==========\n", "utf-8")
    Path("notes.txt").write_text(STORY, "utf-8")
    assert list(find_stories(Path())) == [Path("f.ir"), Path("sub/g.ir")]
    assert not has_heading(Path("missing.ir"))
