"""Tables of lazily imported rules: they name the rules of every module."""

from importlib import import_module
from types import ModuleType

import pytest

from shardir.backends.cpu.kernels import movement_rules as moves
from shardir.backends.cpu.kernels.fft import rules as transforms
from shardir.backends.cpu.kernels.linalg import rules as matrices

TABLES = (matrices, moves, transforms)


@pytest.mark.parametrize("table", TABLES)
def test_a_lazy_table_lists_the_rules_of_its_modules(table: ModuleType) -> None:
    for module, names in table.RULE_MODULES.items():
        assert set(names) == set(import_module(f"shardir.backends.cpu.kernels.{module}").RULES)


@pytest.mark.parametrize("table", TABLES)
def test_every_operation_has_its_rule_in_one_module(table: ModuleType) -> None:
    assert len(table.RULES) == sum(map(len, table.RULE_MODULES.values()))
