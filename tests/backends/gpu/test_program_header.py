"""The text around an emitted program: header, constants, library functions, file names."""

from io import BytesIO

import numpy as np

import shardir as sd
from shardir.backends.emission import get_target
from shardir.backends.gpu.identifiers import make_file_name
from shardir.backends.gpu.library_text import collect_dependencies, definitions, library_text
from shardir.ir.builder import Builder
from shardir.ir.module import Function, Module
from shardir.ir.operation import Dense
from shardir.ir.types import TensorType
from shardir.text.parser import parse
from tests.backends.gpu.program_execution import one_device_emission, program_text
from tests.backends.gpu.programs import PROGRAMS


def test_constants_are_created_once_per_device() -> None:
    text = program_text(
        parse("""\
func @f(%x: u32[3]) -> (u32[3]) {
  %c = constant(value=dense(u32, [4294967295, 2, 3])) : u32[3]
  %z = xor(%x, %c) : u32[3]
  return %z
}
""")
    )
    assert (
        """
@cache
def constant_0(device):
    \"\"\"u32[3]\"\"\"
    return torch.tensor([-1, 2, 3], dtype=torch.int32, device=device).view(torch.uint32)
"""
        in text
    )
    assert "    c = constant_0(device)  # constant: u32[3]\n" in text


def test_the_header_lists_the_shards_of_each_device() -> None:
    with sd.cpu_devices(4):
        lowered = PROGRAMS["mlp_dp_tp"]()
    text = get_target("gpu").emit(lowered.emission("gpu"), {})["mlp_step.py"]
    assert isinstance(text, str)
    assert (
        text[: text.index("Run it")]
        == """\
\"\"\"mlp_step on 4 devices, in torch and Triton.

Each device of the mesh [data=2, model=2] runs it on its shards:

    argument   global             on each device
    params.b1  f32[32@model]      f32[16]
    params.b2  f32[8]             f32[8]
    params.w1  f32[16, 32@model]  f32[16, 16]
    params.w2  f32[32@model, 8]   f32[16, 8]
    x          f32[8@data, 16]    f32[4, 16]
    y          f32[8@data, 8]     f32[4, 8]

    result       global             on each device
    result.0.b1  f32[32@model]      f32[16]
    result.0.b2  f32[8]             f32[8]
    result.0.w1  f32[16, 32@model]  f32[16, 16]
    result.0.w2  f32[32@model, 8]   f32[16, 8]
    result.1     f32[]              f32[]

"""
    )


def test_the_header_for_one_device_lists_types_and_donation() -> None:
    emission = PROGRAMS["alone"]().emission("gpu")
    text = get_target("gpu").emit(emission, {})["mlp_step.py"]
    assert str(text).startswith("""\
\"\"\"mlp_step on 1 device, in torch and Triton.

It takes and returns:

    argument   type
    params.b1  f32[32]      donated
    params.b2  f32[8]       donated
    params.w1  f32[16, 32]  donated
    params.w2  f32[32, 8]   donated
    x          f32[8, 16]
    y          f32[8, 8]

    result       type
""")
    assert "    python mlp_step.py --arguments DIR --results DIR\n\nIt needs torch" in str(text)


def test_large_constants_are_files() -> None:
    array = np.arange(100, dtype=np.float32)
    b = Builder()
    made = b.constant(value=Dense(array), result=TensorType((100,), "f32"))
    function = Function("f", b.block([], [made]), (None,))
    files = get_target("gpu").emit(one_device_emission(Module((), (function,))), {})
    content = files["constants/constant_0.npy"]
    assert isinstance(content, bytes)
    np.testing.assert_array_equal(np.load(BytesIO(content)), array)
    assert """
@cache
def constant_0(device):
    \"\"\"f32[100]\"\"\"
    numbers = np.load(Path(__file__).with_name("constants") / "constant_0.npy")
    return torch.from_numpy(numbers).to(device)
""" in str(files["f.py"])


def test_file_names_differ_from_imported_modules() -> None:
    titles = ("step", "random", "torch", "lambda", "f.1", "2d")
    assert [make_file_name(title) for title in titles] == [
        "step.py",
        "random_program.py",
        "torch_program.py",
        "lambda_program.py",
        "f_1.py",
        "v2d.py",
    ]


def test_only_used_library_functions_are_emitted() -> None:
    assert collect_dependencies(["shift_bits_left"]) == [
        "SIGNED_WORDS",
        "as_words",
        "shift_bits_left",
    ]
    text = library_text(["as_words"])
    assert text.startswith("SIGNED_WORDS = {\n    torch.uint16: torch.int16,\n")
    assert text.endswith("""\
def as_words(x: torch.Tensor) -> torch.Tensor:
    \"\"\"Return the same bits in a type in which torch computes.\"\"\"
    return x.view(SIGNED_WORDS[x.dtype]) if x.dtype in SIGNED_WORDS else x""")
    assert all(name.islower() or name.isupper() for name in definitions())
