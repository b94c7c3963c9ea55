"""Operations and values at the peak of the memory."""

from shardir.ir.location import find_location
from shardir.passes.explain import peak_memory
from shardir.passes.explain.peak_memory import location_of_op
from shardir.text.parser import parse
from tests.passes.explain.programs import program

WITHOUT_RESULTS = program("%x: f32[8@a]", "f32[8]", "sharding_group(%x, group=0)", "return %x")


def test_an_operation_without_results_has_its_name() -> None:
    assert peak_memory(parse(WITHOUT_RESULTS)).at == "sharding_group"


def test_an_operation_without_results_has_only_its_own_line() -> None:
    for line, expected in (("", "None"), (' loc("m.py":3:1)', "m.py:3")):
        op = parse(WITHOUT_RESULTS.replace("group=0)", f"group=0){line}")).main.body.ops[0]
        assert str(location_of_op(op, "f", None)) == expected


def test_values_without_lines() -> None:
    assert peak_memory(parse(WITHOUT_RESULTS)).by_line == [("", 32)]
    assert find_location("f", "%x", None) is None
