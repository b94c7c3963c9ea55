"""The shardings and the mesh of a lowered program."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.frontend.dispatch.programs import lowering
from shardir.frontend.dispatch.programs.lowering import split_used_axes
from shardir.frontend.errors import ArgumentError, IndivisibleError, ShardingError
from shardir.frontend.shardings.sharding import NamedSharding
from shardir.ir.host_function import HostFunction
from shardir.ir.module import Op
from shardir.passes.partitioning.custom_partitioning import rewrite_custom_partitionings
from shardir.sharding import AbstractMesh, PartitionSpec as P, PositionalSharding
from shardir.text.parser import parse
from tests.error_assertions import assert_raises_exactly

DEVICES = sd.devices()
FIRST = sd.Mesh(np.array(DEVICES[:2]), ("a",))
SECOND = sd.Mesh(np.array(DEVICES[2:4]), ("a",))


class GpuDevice:
    """The description of a device of another backend."""

    backend = "gpu"

    def __repr__(self) -> str:
        return "GpuDevice(id=0)"


GPU = GpuDevice()


def test_an_axis_is_split_only_where_its_parts_divide_each_other() -> None:
    mesh = AbstractMesh((12,), ("a",))
    assert split_used_axes((("a", 12),), [(NamedSharding(mesh, P("a")), 1)]) == (("a", 12),)
    used = [
        (NamedSharding(AbstractMesh(sizes, ("b", "c")), P("b")), 1) for sizes in ((2, 6), (3, 4))
    ]
    assert split_used_axes((("a", 12),), used[:1]) == (("a_0", 2), ("a_1", 6))
    assert split_used_axes((("a", 12),), used) == (("a", 12),)


def test_a_program_of_another_backend_takes_no_array_of_a_device() -> None:
    place = SimpleNamespace(backend="cpu")
    sharding = SimpleNamespace(device_assignment=(place, GPU))
    described: Any = [("argument x of f", sharding)]
    assert_raises_exactly(
        lambda: lowering._check_backend("f", cast(Any, place), described),
        ShardingError,
        "f must run on backend 'cpu', and argument x of f is on GpuDevice(id=0); place it on "
        "devices('cpu')",
    )


def test_an_argument_on_other_devices_than_requested_is_an_error() -> None:
    x = sd.device_put(np.ones(4, np.float32), NamedSharding(SECOND, P("a")))
    f = sd.jit(lambda x: x, in_shardings=NamedSharding(FIRST, P("a")))
    with pytest.raises(ShardingError, match=r"^argument x of lambda is placed as NamedSharding"):
        f(x)
    f(sd.device_put(x, NamedSharding(FIRST, P("a"))))


def test_a_result_must_divide_in_its_constrained_dimensions() -> None:
    x = np.arange(21, dtype=np.float32).reshape(7, 3)
    for spec, dimension in ((P(P.UNCONSTRAINED, "a"), 1), (P("a", P.UNCONSTRAINED), 0)):
        f = sd.jit(lambda x: x * 2, out_shardings=NamedSharding(FIRST, spec))
        with pytest.raises(
            IndivisibleError, match=rf"^the result of lambda: dimension {dimension} of shape"
        ):
            f(x)
        np.testing.assert_array_equal(f(x[:6, :2]), x[:6, :2] * 2)
    f = sd.jit(lambda x: x * 2, out_shardings=NamedSharding(FIRST, P(P.UNCONSTRAINED, None)))
    np.testing.assert_array_equal(f(x), x * 2)


def test_an_uncommitted_argument_must_divide() -> None:
    f = sd.jit(lambda x: x * 2, in_shardings=NamedSharding(FIRST, P("a")))
    for x in (snp.ones(3), np.ones(3, np.float32)):
        with pytest.raises(IndivisibleError, match=r"^argument x of lambda: "):
            f(x)
    padded = sd.jit(lambda x: x * 2, in_shardings=NamedSharding(FIRST, P("a")), uneven="pad")
    for x in (snp.ones(3), np.ones(3, np.float32)):
        np.testing.assert_array_equal(padded(x), np.full(3, 2))


def test_a_compiled_program_refuses_arguments_on_other_devices() -> None:
    whole, first, second = (
        sd.device_put(np.ones(4, np.float32), place)
        for place in (
            DEVICES[0],
            NamedSharding(FIRST, P("a")),
            NamedSharding(SECOND, P("a")),
        )
    )
    compiled = sd.jit(lambda x: x * 2).lower(first).compile()
    np.testing.assert_array_equal(compiled(first), np.full(4, 2))
    np.testing.assert_array_equal(compiled(np.ones(4, np.float32)), np.full(4, 2))
    spec = "NamedSharding(mesh=Mesh('a': 2, axis_types=(Auto,)), spec=P('a',), memory_kind=device)"
    other = spec.replace("2, ", "2, device_ids=[2, 3], ")
    assert_raises_exactly(
        lambda: compiled(second),
        ArgumentError,
        f"argument x of lambda is f32[4] placed as {other}, and it was compiled for "
        f"f32[4] placed as {spec}; lower it for such arguments",
    )
    for x in (whole, sd.device_put(first, NamedSharding(FIRST, P()))):
        with pytest.raises(ArgumentError, match=r"^argument x of lambda is f32.4. placed as "):
            compiled(x)
    unplaced = sd.jit(lambda x: x * 2).lower(np.ones(4, np.float32)).compile()
    with pytest.raises(ArgumentError, match=r"^argument x of lambda is f32.4. placed as "):
        unplaced(first)


def test_auto_is_one_request_for_all_arguments() -> None:
    with pytest.raises(ArgumentError, match="in_shardings of lambda has AUTO, and lambda is calle"):
        sd.jit(lambda x: sd.jit(lambda x: x, in_shardings=sd.AUTO)(x))(1.0)


@pytest.mark.parametrize("stage", ["nothing", 3])
def test_an_unknown_stage_is_an_error(stage: Any) -> None:
    compiled = sd.jit(lambda x: x * 2).lower(1.0).compile()
    with pytest.raises(sd.errors.PipelineError, match=f"^no stage is named {stage!r}; the stages"):
        compiled.as_text(stage)


def test_a_struct_has_no_elements() -> None:
    f = sd.jit(lambda x: x * 2)
    struct: Any = sd.ShapeDtypeStruct((), np.float32)
    for call in (partial(f, struct), partial(snp.sin, struct)):
        with pytest.raises(TypeError, match="which has no elements; pass an array, or inspect"):
            call()


def test_a_result_with_an_unconstrained_dimension_states_its_devices() -> None:
    x = sd.device_put(np.arange(64.0).reshape(8, 8), NamedSharding(FIRST, P(None, "a")))
    request = NamedSharding(FIRST, P(None, P.UNCONSTRAINED))
    y = sd.jit(lambda x: x * 2, out_shardings=request)(x)
    assert y.sharding == x.sharding
    assert y.addressable_shards[0].data.shape == x.addressable_shards[0].data.shape
    np.testing.assert_array_equal(y, x * 2)


def test_a_result_has_a_named_sharding_if_the_user_named_a_mesh() -> None:
    """Also if an argument before has an equivalent sharding without a mesh."""
    rows = PositionalSharding(np.array(DEVICES[:2])).reshape(2, 1)
    x = sd.device_put(np.ones((4, 4), np.float32), rows)
    y = sd.device_put(np.ones((4, 4), np.float32), NamedSharding(FIRST, P("a")))
    made = sd.jit(lambda x, y: x * y)(x, y)
    assert made.sharding == y.sharding
    assert type(made.sharding) is NamedSharding


def test_only_calls_with_a_python_function_are_bound_to_a_mesh() -> None:
    """A call that is read from text has the name of its partition function alone."""
    text = """\
func @f(
  %a: f32[8],
) -> (f32[8]) {
  %b = custom-partitioning(%a, function="f", partition="p", factor_rule="") : f32[8]
  return %b
}
"""
    mesh: Any = "a mesh"
    function = parse(text).main
    bound = lowering._bind_custom_partitionings(function, mesh)
    assert bound.body.ops[0].attrs == function.body.ops[0].attrs

    def bind(op: Op) -> Op:
        partition = HostFunction("p", lambda mesh: (f"the rule for {mesh}", print))
        return replace(op, attrs={**op.attrs, "partition": partition})

    function = rewrite_custom_partitionings(function, bind)
    bound = lowering._bind_custom_partitionings(function, mesh)
    attributes = bound.body.ops[0].attrs
    assert attributes["factor_rule"] == "the rule for a mesh"
    assert attributes["partition"].function is print
