"""The workflows of a public host and the configuration of Read the Docs are valid and name what
exists.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
ACTION = re.compile(r"[\w.-]+/[\w.-]+@v\d+(\.\d+)*")

yaml: Any = pytest.importorskip("yaml", reason="PyYAML is not installed")


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def jobs(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = load(path)["jobs"]
    return found


def test_there_are_workflows_for_tests_and_for_wheels() -> None:
    assert {"ci.yml", "wheels.yml"} <= {path.name for path in WORKFLOWS}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_the_keys_that_hosts_require(path: Path) -> None:
    workflow = load(path)
    # YAML reads the key `on` as the boolean.
    assert {"name", True, "jobs"} <= {*workflow}
    for job in workflow["jobs"].values():
        assert isinstance(job["runs-on"], str)
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_have_versions(path: Path) -> None:
    used = [step["uses"] for job in jobs(path).values() for step in job["steps"] if "uses" in step]
    assert used
    assert [each for each in used if not ACTION.fullmatch(each)] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_expressions_name_axes_of_the_matrix(path: Path) -> None:
    for job in jobs(path).values():
        axes = {*job.get("strategy", {}).get("matrix", {})}
        assert {*re.findall(r"\$\{\{ matrix\.(\w+) \}\}", str(job))} <= axes


def test_commands_are_targets_of_the_makefile() -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    commands = [
        step["run"]
        for job in jobs(ROOT / ".github/workflows/ci.yml").values()
        for step in job["steps"]
        if "run" in step
    ]
    assert {"make test PYTHON=python", "make docs PYTHON=python"} <= {*commands}
    for command in commands:
        assert command.split()[1] in targets


def test_the_oldest_tested_python_is_the_oldest_supported_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    versions = jobs(ROOT / ".github/workflows/ci.yml")["test"]["strategy"]["matrix"]["python"]
    assert project["requires-python"] == f">={versions[0]}"


def test_read_the_docs_builds_the_site_of_make_docs() -> None:
    settings = load(ROOT / ".readthedocs.yaml")
    (install,) = settings["python"]["install"]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
        "optional-dependencies"
    ]
    assert {*install["extra_requirements"]} <= {*extras}
    assert (ROOT / settings["sphinx"]["configuration"]).is_file()


def test_the_container_installs_extras_and_runs_a_file_that_exist() -> None:
    text = (ROOT / "Dockerfile").read_text("utf-8")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
        "optional-dependencies"
    ]
    (installed,) = re.findall(r"--editable '\.\[([\w,]+)\]'", text)
    assert {*installed.split(",")} <= {*extras}
    (program,) = re.findall(r'^CMD \["python", "([\w/.]+)"\]', text, re.MULTILINE)
    assert (ROOT / program).is_file()
