"""The commands, and a plug-in, in an environment with the wheel alone: no file of the checkout is
importable there."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.test_extending import FILES

pytestmark = pytest.mark.needs("setuptools")

ROOT = Path(__file__).parents[1]
SOURCES = ("shardir", "passes", "frontend", "backends", "pyproject.toml", "setup.py")
TEXTS = ("README.md", "LICENSE")
WAIT_SECONDS = 600
"""The longest time in which another process of pytest-xdist builds the environment."""

PROGRAM = """\
mesh @m = [x=2]

func @f(
  %a: f32[4@x, 2],
) -> (f32[4, 2]) {
  %b = neg(%a) : f32[4, 2]
  %c = neg(%b) : f32[4, 2]
  return %c
}
"""
ENTRY_POINTS = "[shardir.passes]\ndouble-negation = double_negation:DoubleNegation\n"


def build_environment(folder: Path) -> None:
    """Make a virtual environment with the wheel of the checkout, and the installed dependencies."""
    source = folder / "source"
    source.mkdir(parents=True)
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    for name in (*SOURCES, *TEXTS):
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, source / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(path, source / name)
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(source)]
    subprocess.run([*pip, *build], check=True, env=isolated_variables())
    shutil.rmtree(source)
    (wheel,) = folder.glob("*.whl")
    make = [sys.executable, "-m", "venv", "--without-pip", str(folder / "env")]
    subprocess.run(make, check=True, env=isolated_variables())
    python = python_of(folder)
    # The commands compile the modules that they import, which are few of the installed ones.
    install = ["install", "--no-deps", "--no-index", "--no-compile", str(wheel)]
    subprocess.run([*pip, "--python", str(python), *install], check=True, env=isolated_variables())
    # Lines of this file extend the path; `.pth` files of these folders, such as that of an editable
    # installation of shardir, are not read.
    dependencies = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (site_of(python) / "dependencies.pth").write_text("\n".join(dependencies), encoding="utf-8")


def python_of(folder: Path) -> Path:
    return folder / "env" / "bin" / "python"


def site_of(python: Path) -> Path:
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    found = subprocess.run(
        [python, "-c", code], check=True, env=isolated_variables(), capture_output=True, text=True
    )
    return Path(found.stdout.strip())


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the environment, which is built once for all processes of a test run."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, marker = shared / "wheel", shared / "wheel-is-installed"
    try:
        folder.mkdir()
    except FileExistsError:
        wait_for(marker)
    else:
        build_environment(folder)
        marker.touch()
    return folder


def wait_for(marker: Path) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while not marker.exists():
        assert time.monotonic() < until, "another process did not build the environment"
        time.sleep(0.5)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "program.ir").write_text(PROGRAM, encoding="utf-8")
    (tmp_path / "double_negation.py").write_text(FILES["double_negation.py"], encoding="utf-8")
    return tmp_path


def isolated_variables() -> dict[str, str]:
    """Return the environment variables without the settings of Python and pip.

    With `PYTHONPATH`, pip finds the metadata of a package in a checkout there, and does not install
    the wheel.
    """
    ignored = ("PYTHON", "PIP_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ignored)}


def shardir(environment: Path, folder: Path, *words: str, status: int = 0) -> str:
    """Return what the command prints in the environment."""
    done = subprocess.run(
        [python_of(environment).with_name("shardir"), *words],
        cwd=folder,
        env=isolated_variables(),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (status, "")
    return done.stdout


def test_the_package_is_that_of_the_wheel(environment: Path, folder: Path) -> None:
    code = "import shardir, shardir.passes, shardir.frontend.cli.main; print(shardir.__file__)"
    done = subprocess.run(
        [python_of(environment), "-c", code],
        cwd=folder,
        env=isolated_variables(),
        check=True,
        capture_output=True,
        text=True,
    )
    assert Path(done.stdout.strip()).is_relative_to(environment)


def test_run(environment: Path, folder: Path) -> None:
    assert shardir(environment, folder, "run", "program.ir").startswith("result 0: f32[4@x, 2@-]\n")


def test_opt(environment: Path, folder: Path) -> None:
    printed = shardir(environment, folder, "opt", "program.ir", "--passes", "propagate")
    assert "%c = neg(%b) : f32[4@x, 2@-]" in printed


def test_explain_and_its_page(environment: Path, folder: Path) -> None:
    printed = shardir(environment, folder, "explain", "program.ir", "--value", "%c")
    assert "f32[4@x, 2@-]" in printed
    shardir(environment, folder, "explain", "program.ir", "--html", "page.html")
    assert "shardir-report" in (folder / "page.html").read_text("utf-8")


def test_passes(environment: Path, folder: Path) -> None:
    assert "\nreshard: " in shardir(environment, folder, "passes")


def test_a_story_with_a_pass_of_a_file(environment: Path, folder: Path) -> None:
    text = FILES["story.ir"].partition("\n")[2]
    (folder / "story.ir").write_text(text, encoding="utf-8")
    printed = shardir(environment, folder, "test", "story.ir", "--load", "double_negation.py")
    assert printed.endswith("1 step of 1 story file: 1 passed, 0 failed\n")


def test_a_pass_of_a_file(environment: Path, folder: Path) -> None:
    plugin = ("--load", "double_negation.py")
    pipeline = ("--passes", "double-negation,dce", "--verify")
    printed = shardir(environment, folder, "opt", "program.ir", *pipeline, *plugin)
    assert "neg" not in printed
    described = shardir(environment, folder, "passes", "double-negation", *plugin)
    assert described.endswith("[file double_negation.py]\n")


def test_a_pass_of_an_installed_package(environment: Path, folder: Path) -> None:
    site = site_of(python_of(environment))
    metadata = site / "negations-1.0.dist-info"
    metadata.mkdir()
    module = site / "double_negation.py"
    try:
        shutil.copy(folder / "double_negation.py", module)
        (metadata / "METADATA").write_text("Name: negations\nVersion: 1.0\n", encoding="utf-8")
        (metadata / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
        (folder / "double_negation.py").unlink()
        pipeline = ("--passes", "double-negation,dce")
        assert "neg" not in shardir(environment, folder, "opt", "program.ir", *pipeline)
    finally:
        shutil.rmtree(metadata)
        module.unlink()
