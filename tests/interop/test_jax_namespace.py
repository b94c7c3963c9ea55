"""Every public name of JAX exists in shardir, or an error states why it does not."""

import re
from importlib import import_module
from importlib.util import find_spec

import pytest

from shardir._imports.absent_names import ABSENT_NAMES, absence_reasons, matches_pattern
from tests.jax_namespace import missing_names
from tests.optional_dependencies import require


@pytest.fixture(scope="module")
def missing() -> set[str]:
    require("jax")
    return {name.removeprefix("jax.") for name in missing_names()}


def test_each_missing_name_has_a_reason(missing: set[str]) -> None:
    stated = absence_reasons()
    assert not {name for name in missing if not any(matches_pattern(name, each) for each in stated)}


def test_no_reason_is_about_a_name_that_exists(missing: set[str]) -> None:
    for each in absence_reasons():
        assert any(matches_pattern(name, each) for name in missing), each


def test_no_name_has_two_reasons() -> None:
    names = [name for names in ABSENT_NAMES.values() for name in names.split()]
    assert sorted(names) == sorted(absence_reasons())


def test_reasons_name_public_functions() -> None:
    for reason in ABSENT_NAMES:
        for name in re.findall(r"shardir(?:\.\w+)+", reason):
            module, _, attribute = name.rpartition(".")
            assert hasattr(import_module(module), attribute), name


@pytest.mark.parametrize("pattern", absence_reasons())
def test_errors_state_the_reason(pattern: str) -> None:
    module, _, name = f"shardir.{pattern.replace('*', 'add')}".rpartition(".")
    with pytest.raises(AttributeError) as caught:
        getattr(import_module(module), name)
    assert str(caught.value) == f"{module} has no name {name!r}; {absence_reasons()[pattern]}"


@pytest.mark.parametrize("pattern", absence_reasons())
def test_from_imports_state_the_reason(pattern: str) -> None:
    full = f"shardir.{pattern.replace('*', 'add')}"
    module, _, name = full.rpartition(".")
    for line in (f"from {module} import {name}", f"import {full}"):
        with pytest.raises(ImportError) as caught:
            exec(line, {})
        assert str(caught.value) == f"there is no {full}; {absence_reasons()[pattern]}"


def test_other_absent_names_are_plain_import_errors() -> None:
    for module in ("shardir", "shardir.random", "shardir.lax"):
        with pytest.raises(ImportError, match=f"cannot import name 'qqq' from '{module}'"):
            exec(f"from {module} import qqq", {})
        assert find_spec(f"{module}.qqq") is None
