"""The numbers of replicas and partitions that a module of StableHLO states, and GSPMD."""

import pytest

from shardir.errors import ParseError
from shardir.passes import Pipeline
from shardir.stablehlo.printer import show
from shardir.stablehlo.reader import read

BODY = """\
  sdy.mesh @mesh = <["x"=4, "y"=2]>
  func.func @main(%a: tensor<8xf32> {ATTRIBUTE}) -> tensor<8xf32> {
    %b = stablehlo.negate %a : tensor<8xf32>
    return %b : tensor<8xf32>
  }
"""


def pretty(
    attributes: str, attribute: str = '{sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}'
) -> str:
    return f"module @jit_f attributes {{{attributes}}} {{\n{BODY}}}\n".replace(
        "{ATTRIBUTE}", attribute
    )


def generic(attributes: str) -> str:
    return (
        '"builtin.module"() ({\n'
        + BODY.replace("{ATTRIBUTE}", "")
        + f'}}) {{sym_name = "jit_f", {attributes}}} : () -> ()\n'
    )


def fault_of(text: str) -> str:
    with pytest.raises(ParseError) as caught:
        read(text)
    return str(caught.value)


@pytest.mark.parametrize("form", [pretty, generic])
def test_the_numbers_of_jax_are_accepted(form: object) -> None:
    assert callable(form)
    text = form("mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32")
    assert read(text).meshes[0].size == 8
    assert read(form("mhlo.num_replicas = 1 : i32, jax.uses_shape_polymorphism = false"))


@pytest.mark.parametrize("form", [pretty, generic])
def test_the_mesh_has_as_many_devices_as_there_are_partitions(form: object) -> None:
    assert callable(form)
    fault = fault_of(form("mhlo.num_partitions = 4 : i32"))
    assert fault.partition("\n")[0] == (
        "the mesh @mesh has 8 devices, and the module 4 partitions; state mhlo.num_partitions = 8, "
        "or change the mesh"
    )
    assert "mhlo.num_partitions = 4" in fault


def test_meshes_inside_of_shardings_are_checked() -> None:
    inline = '{sdy.sharding = #sdy.sharding<mesh<["z"=2]>, [{"z"}]>}'
    fault = fault_of(pretty("mhlo.num_partitions = 8 : i32", inline))
    assert fault.startswith("the mesh @mesh_0 has 2 devices, and the module 8 partitions")


def test_a_single_device_is_one_of_the_partitions() -> None:
    on_device = "{{sdy.sharding = #sdy.sharding<mesh<[], device_ids=[{}]>, []>}}"
    assert read(pretty("mhlo.num_partitions = 8 : i32", on_device.format(7)))
    fault = fault_of(pretty("mhlo.num_partitions = 8 : i32", on_device.format(8)))
    assert fault.partition("\n")[0] == (
        "the mesh @maximal_mesh_8 is the device 8, and the module has 8 partitions; state a larger "
        "mhlo.num_partitions, or change the mesh"
    )


@pytest.mark.parametrize("key", ["mhlo.num_partitions", "mhlo.num_replicas"])
def test_numbers_of_devices_are_positive(key: str) -> None:
    assert fault_of(pretty(f"{key} = 0 : i32")).startswith(f"{key} is at least 1\n")


def test_programs_of_replicas_are_refused() -> None:
    """The printer writes the program of each device so; it is not one of global arrays."""
    module = Pipeline.parse("propagate,reshard,partition")(read(pretty("mhlo.num_replicas = 1")))
    fault = fault_of(show(module))
    assert fault.partition("\n")[0] == (
        "each of 8 replicas runs this program on its own arguments, and the reader reads programs "
        "of global arrays; print the program before partition, or trace it with jit and shardings "
        "instead of replicas"
    )


def test_shardings_of_gspmd_are_refused() -> None:
    stated = '{mhlo.sharding = "{devices=[4,2]<=[8] last_tile_dim_replicate}"}'
    message = (
        "mhlo.sharding is a sharding of GSPMD, and the reader reads those of Shardy "
        '(sdy.sharding); lower the program with jax.config.update("jax_use_shardy_partitioner", '
        "True), JAX's default"
    )
    assert fault_of(pretty("", stated).replace("attributes {}", "")).partition("\n")[0] == message
    text = pretty("mhlo.num_replicas = 1")
    operation = f"stablehlo.negate %a {stated} : tensor<8xf32>"
    assert (
        fault_of(text.replace("stablehlo.negate %a : tensor<8xf32>", operation)).partition("\n")[0]
        == message
    )
    result = f"-> (tensor<8xf32> {stated})"
    assert fault_of(text.replace("-> tensor<8xf32>", result)).partition("\n")[0] == message


@pytest.mark.parametrize("plain", ["{replicated}", "{maximal device=0}"])
def test_shardings_of_gspmd_without_axes_are_accepted(plain: str) -> None:
    assert read(pretty("mhlo.num_replicas = 1", f'{{mhlo.sharding = "{plain}"}}')).main.body.ops


def test_quoted_names_of_attributes_are_read() -> None:
    text = pretty("", '{"sdy.sharding" = #sdy.sharding<@mesh, [{"x"}]>}')
    assert read(text.replace("attributes {}", "")).main.body.params[0].sharding is not None
