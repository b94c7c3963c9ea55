"""HLO text is read with its shapes, attributes and source lines; errors show the line."""

import pytest

from shardir.errors import ParseError
from shardir.hlo.module import ArrayShape, HloError, bits_per_element
from shardir.hlo.parser import is_hlo, parse_hlo

TABLES = """\
HloModule jit_f, entry_computation_layout={(f32[8]{0})->f32[8]{0}}, num_partitions=4

FileNames
1 "/home/me/train.py"
2 "/usr/lib/python3/site-packages/flax/linear.py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=7 end_line=7 column=4 end_column=9}
2 {file_name_id=2 function_name_id=1 line=90 end_line=90 column=2 end_column=3}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=1}

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0), metadata={op_name="x[\\'a, b\\']"}
  %t = (f32[8]{0:T(8,128)(2,1)}, /*index=1*/bf16[2,3]) custom-call(%p), custom_call_target="a{"
  %n = f32[8]{0} negate(f32[8]{0} %p), metadata={op_name="jit(f)/neg" stack_frame_id=1}
  %l = f32[8]{0} negate(%n), metadata={op_name="jit(f)/neg" stack_frame_id=2}
  %o = f32[8]{0} negate(%l), metadata={op_name="neg" source_file="old.py" source_line=12}
  %c = s32[2,2]{1,0} constant({
    { 1, 2 },
    { 3, 4 }
  })
  ROOT %r = f32[8]{0} all-reduce(%o), replica_groups={{0,1},{2,3}}, to_apply=%add
}
"""


def test_instructions_have_shapes_operands_and_attributes() -> None:
    module = parse_hlo(TABLES)
    assert (module.name, module.entry, module.partition_count) == ("jit_f", "main", 4)
    main = module.computations["main"]
    assert list(main.instructions) == ["p", "t", "n", "l", "o", "c", "r"]
    assert main.root == "r"
    assert main.instructions["t"].shape == (ArrayShape("f32", (8,)), ArrayShape("bf16", (2, 3)))
    assert main.instructions["n"].operands == ("p",)
    assert main.instructions["c"].opcode == "constant"
    assert main.instructions["r"].attributes["replica_groups"] == "{{0,1},{2,3}}"
    assert main.instructions["r"].callees == ("add",)


@pytest.mark.parametrize(
    ("name", "location"),
    [
        ("n", "/home/me/train.py:7"),
        ("l", "/home/me/train.py:7"),
        ("o", "old.py:12"),
        ("p", "None"),
    ],
    ids=["table", "frame of a package", "older metadata", "no line"],
)
def test_locations_are_lines_of_the_user(name: str, location: str) -> None:
    assert str(parse_hlo(TABLES).computations["main"].instructions[name].loc) == location


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [("pred", 8), ("bf16", 16), ("f8e4m3fn", 8), ("f4e2m1fn", 4), ("s4", 4), ("c128", 128),
     ("token", 0)],
)  # fmt: skip
def test_element_types_have_the_size_in_their_names(dtype: str, bits: int) -> None:
    assert bits_per_element(dtype) == bits
    assert ArrayShape(dtype, (3,)).nbytes == -(-3 * bits // 8)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "module @m {",
            """\
expected `HloModule NAME`; write the text with --xla_dump_hlo_as_text
 --> f.txt:1:1
  |
1 | module @m {
  | ^^^^^^^^^^^""",
        ),
        (
            "HloModule m\n\nENTRY main {\n  x = f32[8] parameter(0)\n",
            """\
the computation main has no end; the text may be truncated
 --> f.txt:5:1
  |
5 | 
  | ^""",
        ),
        (
            "HloModule m\n\nadd {\n  x = f32[8] parameter(0)\n}",
            """\
the module has no ENTRY computation; the text may be truncated
 --> f.txt:5:1
  |
5 | }
  | ^""",
        ),
        (
            "HloModule m\n\nENTRY main {\n  x : f32[8]\n}",
            """\
expected an instruction, such as `%y = f32[8] add(%a, %b)`
 --> f.txt:4:3
  |
4 |   x : f32[8]
  |   ^^^^^^^^^^""",
        ),
        (
            "HloModule m\n\nENTRY main {\n  x = f32[a] add(y)\n}",
            """\
expected a shape and an operation, such as `f32[8] add(...)`
 --> f.txt:4:3
  |
4 |   x = f32[a] add(y)
  |   ^^^^^^^^^^^^^^^^^""",
        ),
        (
            "HloModule m\n\nmain {\n}",
            """\
a computation has at least one instruction
 --> f.txt:4:1
  |
4 | }
  | ^""",
        ),
        (
            "HloModule m\nwhat is this",
            """\
expected a computation, such as `%add (x: f32[], y: f32[]) -> f32[] {`
 --> f.txt:2:1
  |
2 | what is this
  | ^^^^^^^^^^^^""",
        ),
    ],
)
def test_errors_show_the_line(text: str, message: str) -> None:
    with pytest.raises(ParseError) as error:
        parse_hlo(text, "f.txt")
    assert str(error.value) == message


def test_the_number_of_devices_is_bounded() -> None:
    module = parse_hlo(
        f"HloModule m, num_partitions={1 << 21}\n\nENTRY e {{\n x = f32[] iota()\n}}"
    )
    with pytest.raises(HloError) as error:
        _ = module.partition_count
    assert str(error.value) == (
        "the module m has num_partitions=2097152; at most 1048576 devices are supported"
    )


def test_deeply_nested_tuples_are_rejected() -> None:
    shape = "(" * 5000 + "f32[]" + ")" * 5000
    with pytest.raises(ParseError, match="expected a shape and an operation"):
        parse_hlo(f"HloModule m\n\nENTRY e {{\n  x = {shape} tuple()\n}}")


def test_hlo_text_begins_with_its_keyword() -> None:
    assert is_hlo(TABLES)
    assert is_hlo("\nHloModule m")
    assert not is_hlo("func @f() {}")
    assert not is_hlo("HloModules")
