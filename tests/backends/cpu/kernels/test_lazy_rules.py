"""Tables of rules name those of every module, which is imported when one is asked."""

from importlib import import_module
from types import ModuleType

import pytest

from shardir.backends.cpu.kernels import movement_rules as moves
from shardir.backends.cpu.kernels.fft import rules as transforms
from shardir.backends.cpu.kernels.linalg import rules as matrices

TABLES = (matrices, moves, transforms)


@pytest.mark.parametrize("table", TABLES)
def test_a_table_names_the_rules_of_its_modules(table: ModuleType) -> None:
    for module, names in table.RULE_MODULES.items():
        assert set(names) == set(import_module(f"shardir.backends.cpu.kernels.{module}").RULES)


@pytest.mark.parametrize("table", TABLES)
def test_every_operation_stands_in_one_module(table: ModuleType) -> None:
    assert len(table.RULES) == sum(map(len, table.RULE_MODULES.values()))
