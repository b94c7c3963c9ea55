"""Every public name of JAX exists in shardir, or a table states why it does not."""

import pytest

from tests.jax_namespace import matches, missing_names, reasons
from tests.optional_dependencies import require


@pytest.fixture(scope="module")
def missing() -> set[str]:
    require("jax")
    return missing_names()


def test_each_missing_name_has_a_reason(missing: set[str]) -> None:
    stated = reasons()
    assert not {name for name in missing if not any(matches(name, each) for each in stated)}


def test_no_reason_is_about_a_name_that_exists(missing: set[str]) -> None:
    assert not [each for each in reasons() if not any(matches(name, each) for name in missing)]
