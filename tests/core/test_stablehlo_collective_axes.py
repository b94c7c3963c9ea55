"""Collectives of Shardy whose result does not have the sharding that follows from their axes."""

import pytest

from shardir.errors import ParseError
from shardir.stablehlo.reader import read
from shardir.text.printer import print_module

MESHES = """\
sdy.mesh @m = <["x"=4, "y"=2, "z"=2]>
sdy.mesh @turned = <["x"=4, "y"=2, "z"=2], device_ids=[15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, \
3, 2, 1, 0]>
sdy.mesh @n = <["x"=4]>
"""


def program(operand: str, operation: str, result: str, mesh: str = "m") -> str:
    return (
        f"{MESHES}func.func @main(%a: tensor<16x16xf32> {{sdy.sharding = "
        f"#sdy.sharding<@m, {operand}>}}) -> tensor<16x16xf32> {{\n"
        f"  %r = sdy.{operation} %a out_sharding=<@{mesh}, {result}> : tensor<16x16xf32>\n"
        "  return %r : tensor<16x16xf32>\n}\n"
    )


VALID = [
    ('[{"y", "x"}, {}]', 'all_gather [{"x"}, {}]', '[{"y"}, {}]'),
    ('[{"x"}, {}]', 'all_gather [{"x":(2)2}, {}]', '[{"x":(1)2}, {}]'),
    ('[{"y"}, {}]', 'all_slice [{"x"}, {"z"}]', '[{"y", "x"}, {"z"}]'),
    ('[{"x":(1)2}, {}]', 'all_slice [{"x":(2)2}, {}]', '[{"x"}, {}]'),
    ('[{"y", "x"}, {}]', 'all_to_all [{"x"}: 0->1]', '[{"y"}, {"x"}]'),
    ('[{"y"}, {"z"}]', "collective_permute", '[{"z"}, {"y"}]'),
    ('[{"y"}, {}], unreduced={"x"}', 'all_reduce {"x"}', '[{"y"}, {}]'),
    ('[{"y"}, {}], unreduced=max{"x"}', 'all_reduce max {"x"}', '[{"y"}, {}]'),
    ('[{"y"}, {}], unreduced={"x"}', 'reduce_scatter [{"x"}, {}]', '[{"y", "x"}, {}]'),
    ('[{"y"}, {}], unreduced={"z"}', 'replicated_to_unreduced {"x"}',
     '[{"y"}, {}], unreduced={"x", "z"}'),
    ('[{"y", "x"}, {}], unreduced={"z"}', 'sharded_to_unreduced [{"x"}, {}]',
     '[{"y"}, {}], unreduced={"x", "z"}'),
]  # fmt: skip


@pytest.mark.parametrize(("operand", "operation", "result"), VALID, ids=[v[1] for v in VALID])
def test_collectives_with_the_sharding_that_follows_are_read(
    operand: str, operation: str, result: str
) -> None:
    assert "%r = reshard(%a)" in print_module(read(program(operand, operation, result)))


INVALID = [
    (
        '[{"x"}, {}]', 'all_gather [{"y"}, {}]', '[{"x"}, {}]',
        "sdy.all_gather removes y from dimension 0, but the last axes of this dimension are x",
    ),
    (
        '[{"x"}, {}]', 'all_gather [{"x"}, {}]', '[{"x"}, {}]',
        "sdy.all_gather leaves dimension 0 sharded along no axis, but its out_sharding states x",
    ),
    (
        '[{"x"}, {}]', 'all_gather [{"x"}]', "[{}, {}]",
        "sdy.all_gather states axes of 1 dimension for a tensor of rank 2",
    ),
    (
        '[{"y"}, {}]', 'all_slice [{"x"}, {"x"}]', '[{"y", "x"}, {"x"}]',
        "sdy.all_slice states wrong axes: x is used twice in one sharding",
    ),
    (
        '[{"y"}, {}]', 'all_slice [{"w"}, {}]', '[{"y"}, {}]',
        "mesh @m has no axis called 'w'; it has x, y, z",
    ),
    (
        '[{"y"}, {}]', 'all_slice [{"x":(1)2, "x":(2)2}, {}]', '[{"y", "x"}, {}]',
        "sdy.all_slice states wrong axes: x:(1)2 and x:(2)2 follow one another; write x",
    ),
    (
        '[{"x"}, {}]', "all_to_all []", '[{"x"}, {}]',
        "sdy.all_to_all states no axes that it moves",
    ),
    (
        '[{"x"}, {}]', 'all_to_all [{"x"}: 0->2]', "[{}, {}]",
        "sdy.all_to_all moves axes from or to dimension 2 of a tensor of rank 2",
    ),
    (
        '[{"x"}, {}]', 'all_to_all [{"x"}: 0->0]', '[{"x"}, {}]',
        "sdy.all_to_all moves axes twice from or to dimension 0",
    ),
    (
        '[{"x"}, {}]', "collective_permute", '[{"y"}, {}]',
        "sdy.collective_permute changes the number of shards of dimension 0 from 4 to 2",
    ),
    (
        '[{"y"}, {}], unreduced={"x"}', 'all_reduce {"x"}', "[{}, {}]",
        "sdy.all_reduce leaves dimension 0 sharded along y, but its out_sharding states no axis",
    ),
    (
        '[{"y"}, {}]', 'all_reduce {"y"}', '[{"y"}, {}]',
        "sdy.all_reduce states the axis y, along which the operand is sharded",
    ),
    (
        '[{}, {}], replicated={"y"}', 'all_reduce {"y"}', "[{}, {}]",
        "sdy.all_reduce states the axis y, along which the operand is replicated",
    ),
    (
        '[{}, {}], unreduced={"y"}', 'all_reduce {"y"}', '[{}, {}], unreduced={"y"}',
        "sdy.all_reduce states the axis y, along which the result is unreduced",
    ),
    (
        '[{}, {}], unreduced={"x", "y"}', 'all_reduce {"y", "x"}', "[{}, {}]",
        "sdy.all_reduce states axes in the order of the mesh; write x, y",
    ),
    (
        '[{"y"}, {}], unreduced=max{"x"}', 'all_reduce {"x"}', '[{"y"}, {}]',
        "sdy.all_reduce combines values by add, but the operand is unreduced by max",
    ),
    (
        '[{"y"}, {}], unreduced={"x"}', 'all_reduce {"x"}', '[{"y"}, {}], unreduced={"z"}',
        "sdy.all_reduce has a result that is unreduced along z, along which the operand is not",
    ),
    (
        "[{}, {}]", "replicated_to_unreduced {}", "[{}, {}]",
        "sdy.replicated_to_unreduced states no axes along which its result is unreduced",
    ),
    (
        "[{}, {}]", 'replicated_to_unreduced {"x"}', '[{}, {}], unreduced={"y"}',
        "sdy.replicated_to_unreduced makes a value that is unreduced along x, but its "
        "out_sharding states y",
    ),
    (
        '[{"x"}, {}]', 'sharded_to_unreduced [{"x"}, {}]', '[{}, {}], unreduced=max{"x"}',
        "sdy.sharded_to_unreduced makes a sum of partial values, not a max",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("operand", "operation", "result", "message"), INVALID)
def test_contradictions_are_refused(
    operand: str, operation: str, result: str, message: str
) -> None:
    with pytest.raises(ParseError) as error:
        read(program(operand, operation, result))
    assert str(error.value).splitlines()[0] == message


def test_moves_are_in_ascending_order_of_their_sources() -> None:
    text = (
        f"{MESHES}func.func @main(%a: tensor<16x16x16x16xf32> {{sdy.sharding = "
        '#sdy.sharding<@m, [{"x"}, {}, {"y"}, {}]>}) -> tensor<16x16x16x16xf32> {\n'
        '  %r = sdy.all_to_all [{"y"}: 2->3, {"x"}: 0->1] %a '
        'out_sharding=<@m, [{}, {"x"}, {}, {"y"}]> : tensor<16x16x16x16xf32>\n'
        "  return %r : tensor<16x16x16x16xf32>\n}\n"
    )
    with pytest.raises(ParseError) as error:
        read(text)
    assert str(error.value).splitlines()[0] == (
        "sdy.all_to_all states the dimensions from which it moves axes in ascending order, not 2, 0"
    )
    assert read(text.replace('{"y"}: 2->3, {"x"}: 0->1', '{"x"}: 0->1, {"y"}: 2->3'))


@pytest.mark.parametrize(
    ("operation", "mesh", "message"),
    [
        (
            'all_gather [{"x"}, {}]', "n",
            "sdy.all_gather is from mesh @m to mesh @n; only sdy.collective_permute and "
            "sdy.reshard change the mesh",
        ),
        (
            "collective_permute", "n",
            "sdy.collective_permute is from mesh @m to mesh @n, which has other axes",
        ),
    ],
)  # fmt: skip
def test_only_a_permutation_changes_the_order_of_devices(
    operation: str, mesh: str, message: str
) -> None:
    with pytest.raises(ParseError) as error:
        read(program('[{"x"}, {}]', operation, '[{"x"}, {}]', mesh))
    assert str(error.value).splitlines()[0] == message
    assert read(program('[{"x"}, {}]', "collective_permute", '[{"x"}, {}]', "turned"))


def test_axes_in_the_generic_form() -> None:
    """The axes of a reduction make its operand unreduced in both forms."""
    pretty = program('[{"y"}, {}]', 'all_reduce {"x":(2)2}', '[{"y"}, {}]')
    operation = 'sdy.all_reduce {"x":(2)2} %a out_sharding=<@m, [{"y"}, {}]> : tensor<16x16xf32>'
    generic = pretty.replace(
        operation,
        '"sdy.all_reduce"(%a) <{out_sharding = #sdy.sharding<@m, [{"y"}, {}]>, reduction_axes = '
        '#sdy<axis_ref_list{"x":(2)2}>}> : (tensor<16x16xf32>) -> tensor<16x16xf32>',
    )
    assert generic != pretty
    assert print_module(read(generic)) == print_module(read(pretty))
    assert "%a: f32[16@y, 16@-] unreduced(x:(2)2)" in print_module(read(generic))


def test_a_sharded_value_does_not_become_unreduced_along_its_axes() -> None:
    text = program('[{"x"}, {}]', 'all_gather [{"x"}, {}]', "[{}, {}]").replace(
        "  return %r",
        '  %s = sdy.all_reduce {"x"} %r out_sharding=<@m, [{}, {}]> : tensor<16x16xf32>\n'
        "  return %s",
    )
    shown = print_module(read(text))
    assert "%a: f32[16@x, 16@-],\n" in shown
    assert "%r = reshard(%a) : f32[16@-, 16@-] unreduced(x)\n" in shown


def test_axes_that_a_reduction_adds_are_in_the_order_of_the_mesh() -> None:
    text = program('[{}, {}], unreduced={"x":(2)2, "z"}', 'all_reduce {"x", "y"}', "[{}, {}]")
    shown = print_module(read(text.replace('"x", "y"}', '"x":(1)2, "y"}')))
    assert "%a: f32[16@-, 16@-] unreduced(x, y, z),\n" in shown
