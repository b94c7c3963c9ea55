"""The pytest plug-in, in a project that is not this one."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.frontend.stories.test_story_files import FIRST, FORMER, STORY

ROOT = Path(__file__).parents[3]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a test, and a distribution with the entry points of pyproject.toml."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    entries = config["entry-points"]["pytest11"]
    info = tmp_path / "site/shardir_entries-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: shardir-entries\nVersion: 0\n", "utf-8"
    )
    lines = [f"{name} = {module}\n" for name, module in entries.items()]
    (info / "entry_points.txt").write_text("[pytest11]\n" + "".join(lines), "utf-8")
    (info / "RECORD").write_text(
        "shardir/__init__.py,,\nshardir_entries-0.dist-info/RECORD,,\n", "utf-8"
    )
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "test_imports.py").write_text(
        "import sys\n"
        "def test_imports():\n"
        "    assert 'shardir.frontend.stories.pytest_plugin' in sys.modules\n"
        "    heavy = {'numpy', 'lark', 'shardir.passes', 'shardir.frontend.stories.story_files'}\n"
        "    assert heavy.isdisjoint(sys.modules)\n",
        "utf-8",
    )
    return tests


def pytest_output(project: Path, *words: str) -> tuple[int, str]:
    site = project.parent / "site"
    # Other plug-ins of this environment may import NumPy, so only the entry point is loaded.
    others = ["-p", "no:hypothesispytest", "-p", "no:jaxtyping", "-p", "no:xdist"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *others, *words],
        cwd=project,
        env=os.environ | {"PYTHONPATH": f"{site}{os.pathsep}{ROOT}", "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr


def test_no_heavy_module_is_imported_without_a_story(project: Path) -> None:
    (project / "f.ir").write_text(FIRST, "utf-8")
    (project / "binary.ir").write_bytes(b"\xff\xfe\x00")
    status, output = pytest_output(project)
    assert status == 0, output
    assert "1 passed" in output


def test_pytest_does_not_rewrite_the_modules_of_shardir(project: Path) -> None:
    (project / "test_imports.py").write_text(
        "from importlib.machinery import SourceFileLoader\n"
        "def test_loader():\n"
        "    from shardir.ir import module\n"
        "    assert type(module.__loader__) is SourceFileLoader\n",
        "utf-8",
    )
    status, output = pytest_output(project)
    assert status == 0, output


def test_steps_are_tests_and_differences_are_shown(project: Path) -> None:
    (project / "f.ir").write_text(FORMER, "utf-8")
    (project / "g.ir").write_text(STORY.replace("add(%a, %a)", "addd(%a, %a)"), "utf-8")
    status, output = pytest_output(project, "f.ir", "g.ir", "--tb=short", "-rA")
    assert status == 1, output
    assert "PASSED" not in output
    assert "f.ir:12: step 1, 'cse', makes another program than the story shows\n" in output
    assert "+  %c = add(%a, %a) : f32[4]\n" in output
    assert "no operation is called 'addd'; did you mean 'add'?\n  --> g.ir:18:8\n" in output
    assert "Traceback" not in output
    assert "4 failed" in output


def test_update_rewrites_the_story(project: Path) -> None:
    (project / "f.ir").write_text(FORMER, "utf-8")
    status, output = pytest_output(project, "f.ir", "--update-stories", "-vv")
    assert status == 0, output
    assert (project / "f.ir").read_text("utf-8") == STORY
    assert "f.ir::cse PASSED" in output
    assert "f.ir::dce PASSED" in output


def test_an_update_that_fails_is_an_error_of_the_file(project: Path) -> None:
    text = STORY.replace("= cse", "= csee")
    (project / "f.ir").write_text(text, "utf-8")
    status, output = pytest_output(project, "f.ir", "--update-stories")
    assert status == 2, output
    assert "no pass is called 'csee'; did you mean 'cse'?" in output
    assert "Traceback" not in output
    assert (project / "f.ir").read_text("utf-8") == text
