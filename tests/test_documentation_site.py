"""The documentation site contains every public name and every command, and builds without warnings.

Only `--long` builds the site.
"""

import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from docs.generation.api_reference import as_markdown, class_members, module_page
from docs.generation.command_reference import command_names, command_page
from docs.generation.public_names import documentation, public_modules, public_names
from tests.test_public_modules import TABLES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def test_public_modules_are_found() -> None:
    modules = public_modules()
    assert {
        *TABLES,
        "shardir.numpy",
        "shardir.numpy.fft",
        "shardir.lax",
        "shardir.scipy.stats",
    } <= {*modules}
    assert not [name for name in modules if "._" in name]


@pytest.mark.parametrize("module", public_modules())
def test_every_public_name_is_documented_on_the_page_of_its_module(module: str) -> None:
    page = module_page(module)
    names = public_names(module)
    assert {name for name in dir(import_module(module)) if name[0] != "_"} <= {*names}
    assert [name for name in names if not documentation(module, name)] == []
    submodules = {each.rpartition(".")[2] for each in public_modules() if each != module}
    missing = [
        name
        for name in names
        if name not in submodules and not any(f"}} {name}{end}" in page for end in ("\n", "("))
    ]
    assert missing == []


def test_every_member_of_a_public_class_is_documented() -> None:
    undocumented = {
        f"{member.owner.__module__}.{member.owner.__qualname__}.{member.name}"
        for module in public_modules()
        for name in public_names(module)
        if isinstance(cls := getattr(import_module(module), name), type)
        for member in class_members(cls)
        if not member.text
    }
    assert sorted(undocumented) == []


def test_constants_are_documented_by_the_string_below_them() -> None:
    assert documentation("shardir.numpy", "newaxis") == "An index that adds a dimension of size 1."
    assert documentation("shardir.scipy.stats", "expon") == "The exponential distribution."


def test_text_of_docstrings_is_literal_outside_of_backticks() -> None:
    assert as_markdown("a*b, `c*d` and <e> [f]") == r"a\*b, `c*d` and \<e\> \[f\]"
    assert as_markdown("Add.\n\n>>> 1 + 1\n2") == "Add.\n\n```pycon\n>>> 1 + 1\n2\n```"


def test_the_page_of_the_command_line_describes_every_command() -> None:
    page = command_page()
    assert {"opt", "run", "explain", "emit", "as-jax"} <= {*command_names()}
    for name in command_names():
        assert f"(shardir-{name})=\n## shardir {name}\n" in page
    assert "| `--verify` | run the program before and after each pass" in page


def test_every_page_is_in_the_table_of_contents() -> None:
    index = (DOCS / "index.md").read_text("utf-8").splitlines()
    pages = {path.stem for path in DOCS.glob("*.md")} - {"index"}
    assert pages <= {*index}


@pytest.mark.long
def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    missing = [name for name in ("sphinx", "myst_nb", "furo") if find_spec(name) is None]
    if missing:
        pytest.skip(f"the extra `docs` is not installed: no module {', '.join(missing)}")
    command = [sys.executable, "-m", "sphinx", "--builder", "html", "--fail-on-warning",
               "--keep-going", "--quiet", "--doctree-dir", str(tmp_path / "doctrees")]  # fmt: skip
    done = subprocess.run(
        [*command, str(DOCS), str(tmp_path / "site")], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    page = tmp_path / "site/reference/api/shardir.numpy.html"
    assert "shardir.numpy.arange" in page.read_text("utf-8")
