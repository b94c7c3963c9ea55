"""`assert_pass`: the program that a pipeline makes, its results, and the errors."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from shardir import testing
from shardir.errors import ParseError
from shardir.frontend.errors import ArgumentError
from tests.frontend.stories.test_story_files import FIRST, SECOND
from tests.frontend.stories.wrong_pass import pass_that_replaces_exp

PLUGIN = "shardir.frontend.stories.pytest_plugin"


def test_spaces_and_comments_do_not_matter() -> None:
    testing.assert_pass(FIRST, "cse", SECOND)
    testing.assert_pass(FIRST, "cse,dce", "// Once.\n" + SECOND.replace("\n  ", "\n      "))


def test_another_program_is_shown_as_a_diff() -> None:
    with pytest.raises(testing.DifferentProgramError) as caught:
        testing.assert_pass(FIRST, "dce", SECOND)
    assert str(caught.value) == (
        "'dce' makes another program than `after`; `before` and the new program compute the same "
        "results\n"
        "--- after\n"
        "+++ result\n"
        "@@ -2,6 +2,7 @@\n"
        "   %x: f32[4],\n"
        " ) -> (f32[4]) {\n"
        "   %a = exp(%x) : f32[4]\n"
        "-  %c = add(%a, %a) : f32[4]\n"
        "+  %b = exp(%x) : f32[4]\n"
        "+  %c = add(%a, %b) : f32[4]\n"
        "   return %c\n"
        " }"
    )
    assert isinstance(caught.value, AssertionError)


def test_other_results_are_an_error() -> None:
    with pass_that_replaces_exp(), pytest.raises(testing.DifferentResultsError) as caught:
        testing.assert_pass(FIRST, "replace-exp", FIRST.replace("exp(", "sin("))
    assert str(caught.value) == (
        "'replace-exp' makes a program that computes other results than `before`: "
        "result 0 differs (by 0.685, and 0.0002 is allowed)"
    )


def test_a_result_that_is_nan_names_the_element() -> None:
    before = """\
func @f(
  %x: f32[4],
) -> (f32[4]) {
  %a = exp(%x) : f32[4]
  %b = log(%a) : f32[4]
  return %b
}
"""
    with pass_that_replaces_exp(), pytest.raises(testing.DifferentResultsError) as caught:
        testing.assert_pass(before, "replace-exp", before.replace("exp(", "sin("))
    assert re.fullmatch(
        r".*: result 0 differs by up to inf at \[\d\], where [-\d.]+ became nan",
        str(caught.value),
    )


def test_invalid_text_and_text_without_a_function_are_errors() -> None:
    with pytest.raises(ParseError, match="--> <after>:1:8"):
        testing.assert_pass(FIRST, "cse", "func @f(")
    with pytest.raises(ArgumentError, match="a program has a function, and <before> has none"):
        testing.assert_pass("", "cse", SECOND)


def test_a_golden_file_is_compared_and_updated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "after.ir"
    with pytest.raises(ArgumentError) as missing:
        testing.assert_pass(FIRST, "cse", file)
    assert str(missing.value).splitlines()[0] == (
        f"cannot read {str(file)!r}: No such file or directory; pytest --update-stories writes the "
        "file"
    )
    file.write_text("// A comment.\n" + SECOND.replace("add", "mul"), encoding="utf-8")
    with pytest.raises(testing.DifferentProgramError) as caught:
        testing.assert_pass(FIRST, "cse,dce", file)
    assert str(caught.value).splitlines()[-1] == (
        f"If the new program is right, write it to {file}: pytest --update-stories"
    )
    monkeypatch.setenv("SHARDIR_UPDATE", "1")
    testing.assert_pass(FIRST, "cse,dce", file)
    assert file.read_text(encoding="utf-8") == "// A comment.\n" + SECOND
    with pass_that_replaces_exp(), pytest.raises(testing.DifferentProgramError):
        testing.assert_pass(FIRST, "replace-exp", file)
    assert file.read_text(encoding="utf-8") == "// A comment.\n" + SECOND
    monkeypatch.delenv("SHARDIR_UPDATE")
    testing.assert_pass(FIRST, "cse,dce", file)


def test_the_option_of_pytest_updates_golden_files(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "from pathlib import Path\n"
        "from shardir import testing\n"
        f"def test_it():\n    testing.assert_pass({FIRST!r}, 'cse,dce', Path('golden/f.ir'))\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", PLUGIN, "test_it.py"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 1
    command.append("--update-stories")
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 0
    assert (tmp_path / "golden" / "f.ir").read_text(encoding="utf-8") == SECOND
