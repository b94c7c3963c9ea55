"""The table of rules names those of every module."""

from importlib import import_module

import pytest

from shardir.backends.cpu.native.moves.rules import MODULES, RULES


@pytest.mark.parametrize("module", MODULES)
def test_the_table_names_the_rules_of_a_module(module: str) -> None:
    home = import_module(f"shardir.backends.cpu.native.moves.{module}")
    assert set(MODULES[module]) == set(home.RULES)


def test_every_operation_stands_in_one_module() -> None:
    assert len(RULES) == sum(map(len, MODULES.values()))
