"""`shardir test` prints a line for each step and a summary, and its status states differences."""

from pathlib import Path

import pytest

from tests.frontend.cli.command import run
from tests.frontend.stories.test_story_files import FIRST, FORMER, STORY


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("stories").mkdir()
    Path("stories/f.ir").write_text(STORY, "utf-8")
    Path("stories/program.ir").write_text(FIRST, "utf-8")
    return tmp_path


def output_of(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    assert run("test", *words) == status
    captured = capsys.readouterr()
    return captured.out + captured.err


def test_a_file_and_a_folder_pass(capsys: pytest.CaptureFixture[str]) -> None:
    expected = (
        "stories/f.ir:12: cse: passed\n"
        "stories/f.ir:22: dce: passed\n"
        "2 steps of 1 story file: 2 passed, 0 failed\n"
    )
    assert output_of(capsys, "stories/f.ir") == expected
    assert output_of(capsys, "stories") == expected


def test_a_difference_fails_and_other_files_are_checked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("stories/e.ir").write_text(FORMER.partition("\n// ===== dce")[0], "utf-8")
    output = output_of(capsys, "stories", status=1)
    assert output.startswith(
        "stories/e.ir:12: cse: failed\n"
        "stories/e.ir:12: step 1, 'cse', makes another program than the story shows\n"
        "--- story\n"
    )
    assert output.endswith(
        "update the story: shardir test stories/e.ir --update, or pytest --update-stories\n"
        "stories/f.ir:12: cse: passed\n"
        "stories/f.ir:22: dce: passed\n"
        "3 steps of 2 story files: 2 passed, 1 failed\n"
    )


def test_update_rewrites_stories_that_differ(capsys: pytest.CaptureFixture[str]) -> None:
    Path("stories/g.ir").write_text(FORMER, "utf-8")
    assert output_of(capsys, "stories", "--update") == (
        "stories/f.ir:12: cse: passed\n"
        "stories/f.ir:22: dce: passed\n"
        "stories/g.ir: updated\n"
        "stories/g.ir:12: cse: passed\n"
        "stories/g.ir:22: dce: passed\n"
        "4 steps of 2 story files: 4 passed, 0 failed\n"
    )
    assert Path("stories/g.ir").read_text("utf-8") == STORY


def test_a_story_that_cannot_be_updated_stays(capsys: pytest.CaptureFixture[str]) -> None:
    text = STORY.replace("= dce", "= dcee")
    Path("stories/f.ir").write_text(text, "utf-8")
    assert output_of(capsys, "stories/f.ir", "--update", status=1) == (
        "stories/f.ir: cannot be updated\n"
        "no pass is called 'dcee'; did you mean 'dce'?\n"
        "2 steps of 1 story file: 0 passed, 2 failed\n"
    )
    assert Path("stories/f.ir").read_text("utf-8") == text


def test_a_parse_error_marks_the_token(capsys: pytest.CaptureFixture[str]) -> None:
    Path("stories/f.ir").write_text(STORY.replace("%c = add(%a, %a)", "%c = addd(%a, %a)"), "utf-8")
    assert output_of(capsys, "stories/f.ir", status=1).startswith(
        "stories/f.ir:12: cse: failed\n"
        "no operation is called 'addd'; did you mean 'add'?\n"
        "  --> stories/f.ir:18:8\n"
        "   |\n"
        "18 |   %c = addd(%a, %a) : f32[4]\n"
        "   |        ^^^^\n"
    )


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("absent", "cannot read 'absent': No such file or directory"),
        (
            "stories/program.ir",
            "stories/program.ir has no step; write a heading such as '// ===== propagate' above "
            "the program after each pipeline",
        ),
        (
            "empty",
            "empty has no story: no .ir file in it has a heading such as '// ===== propagate'",
        ),
    ],
)
def test_a_path_without_a_story_is_an_error(
    path: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("empty").mkdir()
    assert output_of(capsys, path, status=1) == f"error: {message}\n"
