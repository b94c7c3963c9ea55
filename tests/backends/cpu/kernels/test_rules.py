"""The table of lazily imported rules: it names the rules of every module."""

from importlib import import_module

from shardir.backends.cpu.kernels.rules import LAZY_RULES


def test_the_lazy_table_lists_the_rules_of_its_modules() -> None:
    for module, names in LAZY_RULES.items():
        assert set(names) == set(import_module(f"shardir.backends.cpu.kernels.{module}").RULES)


def test_every_operation_has_its_rule_in_one_module() -> None:
    operations = [name for names in LAZY_RULES.values() for name in names]
    assert len(operations) == len(set(operations))
