"""Products of StableHLO whose result or algorithm has other dtypes than their operands."""

import numpy as np
import pytest

from shardir.errors import OpaqueOperationError
from shardir.interpret.interpreter import evaluate
from shardir.ops.opaque import check_no_opaque_operations
from shardir.passes import Pipeline
from shardir.stablehlo.printer import show
from shardir.stablehlo.reader import read

ALGORITHM = (
    "lhs_precision_type = {}, rhs_precision_type = {}, accumulation_type = {}, "
    "lhs_component_count = {}, rhs_component_count = 1, num_primitive_operations = {}, "
    "allow_imprecise_accumulation = {}"
)


def product(x: str, y: str, result: str, *algorithm: object, generic: bool = False) -> str:
    """Return a module with the product of two vectors of 2 elements."""
    types = f"(tensor<2x{x}>, tensor<2x{y}>) -> tensor<{result}>"
    stated = ALGORITHM.format(*algorithm) if algorithm else ""
    if generic:
        numbers = (
            "lhs_batching_dimensions = [], rhs_batching_dimensions = [], "
            "lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [0]"
        )
        operation = (
            f'"stablehlo.dot_general"(%x, %y) <{{algorithm = #stablehlo.dot_algorithm<{stated}>, '
            f"dot_dimension_numbers = #stablehlo.dot<{numbers}>}}>"
        )
    else:
        tail = f", algorithm = <{stated}>" if stated else ""
        operation = f"stablehlo.dot_general %x, %y, contracting_dims = [0] x [0]{tail}"
    return f"""\
func.func @main(%x: tensor<2x{x}>, %y: tensor<2x{y}>) -> tensor<{result}> {{
  %z = {operation} : {types}
  return %z : tensor<{result}>
}}
"""


def compute(text: str, x: object, y: object) -> np.ndarray:
    module = read(text)
    dtypes = [param.type.numpy for param in module.main.body.params]
    arrays = [np.array(each, dtype) for each, dtype in zip((x, y), dtypes, strict=True)]
    (result,) = evaluate(module.main, arrays)
    assert result.dtype == module.main.body.returns[0].type.numpy
    return np.asarray(result)


@pytest.mark.parametrize(
    ("dtypes", "x", "y", "expected"),
    [
        (("f32", "f32", "f16"), [70000, 2], [0.001, 1], 72),
        (("f32", "f32", "i1"), [0.25, -0.25], [1, 1], False),
        (("f32", "f32", "i32"), [2.5, 0], [3, 0], 7),
        (("complex<f32>", "complex<f32>", "f32"), [1j, 1], [1j, 3], 2),
        (("i32", "i32", "f32"), [2**30, 2**30], [4, 4], 2.0**33),
        (("i1", "i1", "i1"), [True, False], [False, True], False),
        (("i1", "i1", "i32"), [True, True], [True, True], 2),
        (("bf16", "f32", "f32"), [1, 2], [1 + 2**-12, 0], 1 + 2**-12),
    ],
)
def test_results_of_other_dtypes(
    dtypes: tuple[str, str, str], x: object, y: object, expected: object
) -> None:
    assert compute(product(*dtypes), x, y) == expected


@pytest.mark.parametrize("generic", [False, True])
@pytest.mark.parametrize(
    ("dtypes", "algorithm", "expected"),
    [
        (("f32", "f32", "f32"), ("f32", "f32", "f32", 1, 1, "false"), 1 + 2**-12),
        (("f32", "f32", "f32"), ("bf16", "bf16", "f32", 1, 1, "false"), 1 + 2**-12),
        (("f32", "f32", "f32"), ("bf16", "bf16", "f32", 1, 6, "false"), 1 + 2**-12),
        (("f16", "f16", "f16"), ("f16", "f16", "f16", 1, 1, "false"), 1),
        (("f32", "f32", "f16"), ("f16", "f16", "f16", 1, 1, "false"), 1),
    ],
)
def test_algorithms_that_xla_supports_on_cpus(
    dtypes: tuple[str, str, str], algorithm: tuple[object, ...], expected: float, generic: bool
) -> None:
    text = product(*dtypes, *algorithm, generic=generic)
    assert compute(text, [1 + 2**-12, 0], [1, 0]) == np.array(expected, "float32")


@pytest.mark.parametrize(
    ("algorithm", "name"),
    [
        (("tf32", "tf32", "f32", 1, 1, "false"), "TF32_TF32_F32"),
        (("tf32", "tf32", "f32", 1, 3, "false"), "TF32_TF32_F32_X3"),
        (("f16", "f16", "f32", 1, 1, "false"), "F16_F16_F32"),
        (("f32", "f32", "f32", 2, 1, "false"), ""),
        (("f32", "f32", "f32", 1, 1, "true"), ""),
    ],
)
def test_other_algorithms_cannot_run(algorithm: tuple[object, ...], name: str) -> None:
    described = name or f"<{ALGORITHM.format(*algorithm)}>"
    with pytest.raises(OpaqueOperationError) as caught:
        check_no_opaque_operations(read(product("f32", "f32", "f32", *algorithm)))
    assert str(caught.value).partition("\n")[0] == (
        "stablehlo.dot_general at <text>:2 is not supported and cannot run: its algorithm is "
        f"{described}, and XLA supports only F16_F16_F16, BF16_BF16_F32, BF16_BF16_F32_X3, "
        "BF16_BF16_F32_X6, F32_F32_F32, F64_F64_F64 on CPUs; replace it with "
        "supported operations of StableHLO"
    )


def test_algorithms_of_complex_operands_cannot_run() -> None:
    text = product(*["complex<f32>"] * 3, "f32", "f32", "f32", 1, 1, "false")
    with pytest.raises(OpaqueOperationError, match="multiplies real numbers, not c64; leave it"):
        check_no_opaque_operations(read(text))


def test_shardings_propagate_through_products_with_other_algorithms() -> None:
    stated = ALGORITHM.format("tf32", "tf32", "f32", 1, 1, "false")
    module = read(f"""\
sdy.mesh @m = <["x"=2, "y"=2]>
func.func @main(%a: tensor<8x4xf32> {{sdy.sharding = #sdy.sharding<@m, [{{"x"}}, {{}}]>}},
                %b: tensor<4x6xf32> {{sdy.sharding = #sdy.sharding<@m, [{{}}, {{"y"}}]>}})
    -> tensor<8x6xf32> {{
  %c = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0], algorithm = <{stated}>
      : (tensor<8x4xf32>, tensor<4x6xf32>) -> tensor<8x6xf32>
  return %c : tensor<8x6xf32>
}}
""")
    text = show(Pipeline.parse("propagate")(module))
    assert f"algorithm = <{stated}>" in text
    assert '#sdy.sharding_per_value<[<@m, [{"x"}, {"y"}]>]>' in text
