"""Exported programs: text, bytes, calls, and programs of JAX."""

import json
import sys
import zlib
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import export
from shardir.frontend.dispatch.stages.export import SIGNATURE, ExportedProgramError
from shardir.frontend.errors import ArgumentError
from shardir.ir.equality import find_difference
from shardir.stablehlo.bytecode import BytecodeError, bytecode_to_text, text_to_bytecode
from shardir.stablehlo.reader import read
from tests.optional_dependencies import require

WEIGHTS = np.arange(3, dtype="f")


def model(params: dict[str, Any], x: Any) -> Any:
    hidden = snp.tanh(x @ params["w"]) + snp.asarray(WEIGHTS)
    return hidden, [hidden.sum()]


def example() -> tuple[Any, Any]:
    return {"w": np.linspace(-1, 1, 12, dtype="f").reshape(4, 3)}, np.ones((2, 4), "f")


def test_a_serialized_program_has_the_same_results() -> None:
    args = example()
    found = export.export(sd.jit(model))(*args)
    assert found.mlir_module().startswith("module {\n  func.func @main(")
    assert (found.fun_name, found.nr_devices, found.platforms) == ("model", 1, ("cpu",))
    assert [each.shape for each in found.in_avals] == [(4, 3), (2, 4)]
    again = export.deserialize(found.serialize())
    assert again.mlir_module() == found.mlir_module()
    assert (again.in_tree, again.out_tree) == (found.in_tree, found.out_tree)
    for way in (found.call, again.call, sd.jit(again.call)):
        result, (total,) = way(*args)
        np.testing.assert_allclose(result, np.tanh(args[1] @ args[0]["w"]) + WEIGHTS, rtol=1e-6)
        np.testing.assert_allclose(total, result.sum(), rtol=1e-6)


def test_containers_are_restored() -> None:
    args = {"a": [1.0, (), None], "b": {}}, (2.0,)
    found = export.export(sd.jit(lambda x, y: [y, x, None]))(*args)
    again = export.deserialize(found.serialize())
    assert (again.in_tree, again.out_tree) == (found.in_tree, found.out_tree)
    assert again.call(*args) == [args[1], args[0], None]
    numbered = export.export(sd.jit(lambda x: x))({1: 2.0})
    with pytest.raises(ExportedProgramError) as caught:
        numbered.serialize()
    assert str(caught.value).splitlines()[0] == (
        "arguments and results of a serialized program are in dictionaries with texts as keys, "
        "lists and tuples, got {1: 0}"
    )


def test_a_deserialized_program_is_differentiable() -> None:
    params, x = example()
    again = export.deserialize(export.export(sd.jit(model))(params, x).serialize())
    got = sd.grad(lambda x: again.call(params, x)[1][0])(x)
    expected = sd.grad(lambda x: model(params, x)[1][0])(x)
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_arguments_of_another_type_are_refused() -> None:
    params, x = example()
    found = export.export(sd.jit(model))(params, x)
    with pytest.raises(
        ArgumentError, match="argument 1 of model was exported as float32 of shape "
    ):
        found.call(params, np.ones((3, 4), "f"))
    with pytest.raises(ArgumentError, match=r"^model was exported for arguments of the structure "):
        found.call(params["w"], x)


def test_errors_of_exports() -> None:
    with pytest.raises(ArgumentError, match=r"^export takes the result of jit, got "):
        export.export(model)
    with pytest.raises(ArgumentError, match=r"^export has no checks that can be disabled; "):
        export.export(sd.jit(model), disabled_checks=["custom call"])
    found = export.export(sd.jit(model))(*example())
    with pytest.raises(ExportedProgramError, match=r"^the exported program is damaged: "):
        export.deserialize(found.serialize()[:-9])
    with pytest.raises(ExportedProgramError) as caught:
        found.serialize(vjp_order=1)
    assert str(caught.value).startswith(
        "serialize cannot include derivatives (vjp_order is 1); export jit(value_and_grad(fun)) in "
        "addition"
    )


@pytest.mark.parametrize(
    "header", ["3", "{}", '{"fun_name": "f", "in_tree": [1, 2, 3]}', "[" * 9999]
)
def test_damaged_headers_are_errors(header: str) -> None:
    data = SIGNATURE + zlib.compress(header.encode())
    with pytest.raises(ExportedProgramError, match=r"^the exported program is damaged: .*again"):
        export.deserialize(data)


def test_a_sharded_program_keeps_its_shardings() -> None:
    sharding = sd.NamedSharding(sd.make_mesh((8,), ("x",)), sd.P("x"))
    found = export.export(sd.jit(snp.sin, in_shardings=sharding))(np.ones(8, "f"))
    assert 'sdy.mesh @mesh = <["x"=8]>' in found.mlir_module()
    assert found.nr_devices == 8
    np.testing.assert_allclose(found.call(np.ones(8, "f")), np.sin(np.ones(8)), rtol=1e-6)
    with pytest.raises(ExportedProgramError, match=r"^a deserialized program with shardings "):
        export.deserialize(found.serialize()).call(np.ones(8, "f"))


def test_jax_reads_the_bytecode_of_a_sharded_program() -> None:
    require("jax", "jaxlib")
    from jax._src.interpreters.mlir import make_ir_context
    from jaxlib import _jax

    mesh = sd.make_mesh((4, 2), ("x", "y"))
    sharding = sd.NamedSharding(mesh, sd.P("x", "y"))

    def body(x: Any) -> Any:
        return sd.lax.psum(sd.vmap(lambda row: snp.sort(snp.sin(row)))(x), "x")

    mapped = sd.shard_map(body, mesh=mesh, in_specs=sd.P("x"), out_specs=sd.P())
    found = export.export(sd.jit(lambda x: mapped(x) * 2, in_shardings=sharding))(
        np.ones((8, 2), "f")
    )
    code = found.mlir_module_serialized
    again, written = read(bytecode_to_text(code, "code")), read(found.mlir_module())
    assert find_difference(again, written, names=False) is None
    with make_ir_context() as context:
        assert context is not None
        text = str(_jax.mlir.deserialize_portable_artifact(code))
    assert "sdy.manual_computation" in text


def test_bytecode_without_jaxlib_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jaxlib.mlir", None)
    found = export.export(sd.jit(snp.sin))(np.ones(8, "f"))
    with pytest.raises(ExportedProgramError) as raised:
        _ = found.mlir_module_serialized
    assert str(raised.value).splitlines()[0] == (
        "only jaxlib writes bytecode, and jaxlib is not installed; pip install 'shardir[jax]', or "
        "use the text of the program"
    )


def test_text_that_jaxlib_refuses_has_no_bytecode() -> None:
    require("jaxlib")
    with pytest.raises(BytecodeError) as raised:
        text_to_bytecode("func.func @f(%x: tensor<2xf32>) { stablehlo.unknown }")
    assert str(raised.value).startswith("jaxlib cannot write the bytecode: ")
    assert str(raised.value).endswith("; use the text of the program")


def test_jax_reads_the_bytecode() -> None:
    require("jax", "jaxlib")
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    code = export.export(sd.jit(model))(*example()).mlir_module_serialized
    assert code.startswith(b"ML\xefR")
    with ir.Context() as context:
        stablehlo.register_dialect(context)
        assert "stablehlo.tanh" in str(stablehlo.deserialize_portable_artifact(context, code))


def test_programs_of_jax_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    require("jax")
    import jax
    from jax import export as jax_export

    params, x = example()
    function = jax.jit(lambda params, x: {"y": jax.numpy.sin(x @ params["w"])})
    theirs = jax_export.export(function)(params, x)
    # JAX reads and writes bytes with a package that may not be installed.
    monkeypatch.setattr(jax_export, "deserialize", lambda blob: theirs)
    found = export.deserialize(FLATBUFFER)
    np.testing.assert_allclose(found.call(params, x)["y"], np.sin(x @ params["w"]), rtol=1e-6)
    unused = jax_export.export(jax.jit(lambda x, y: x + 1))(x, x)
    monkeypatch.setattr(jax_export, "deserialize", lambda blob: unused)
    with pytest.raises(ExportedProgramError, match=r" does not use 1 argument, which its text "):
        export.deserialize(FLATBUFFER)
    sizes = jax_export.symbolic_shape("b")
    symbolic = jax_export.export(jax.jit(lambda x: x + 1))(jax.ShapeDtypeStruct(sizes, "float32"))
    several = jax_export.export(jax.jit(lambda x: x + 1), platforms=["cpu", "tpu"])(x)
    for program, fault in (
        (symbolic, r"has sizes that are symbols, \(b,\); export it for a shape of numbers"),
        (several, r"is one for the platforms cpu, tpu, so that its text has .*; export it for one"),
    ):
        monkeypatch.setattr(jax_export, "deserialize", lambda blob, program=program: program)
        with pytest.raises(ExportedProgramError, match=rf"^the program <lambda> {fault}"):
            export.deserialize(FLATBUFFER)
    monkeypatch.setattr(jax_export, "deserialize", lambda blob: 1 / 0)
    with pytest.raises(
        ExportedProgramError, match=r"^the bytes are not an exported program: division"
    ):
        export.deserialize(FLATBUFFER)

    def need_package(blob: object) -> None:
        raise ImportError("install 'flatbuffers'")

    monkeypatch.setattr(jax_export, "deserialize", need_package)
    with pytest.raises(ExportedProgramError) as caught:
        export.deserialize(FLATBUFFER)
    assert str(caught.value).partition("\n")[0] == (
        "the bytes are not a program of shardir.export, and JAX needs another package to read them "
        "as one of jax.export: install 'flatbuffers'"
    )


FLATBUFFER = bytes([12, 0, 0, 0, 0, 0, 0, 0, 4, 0, 4, 0, 4, 0, 0, 0])
"""A table without fields, as a stand-in for the bytes of JAX: its list of fields is at 8."""


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda blob: b"", "the bytes are not an exported program of shardir or JAX; pass those "),
        (lambda blob: b"PK\3\4" * 9, "the bytes are not an exported program of shardir or JAX; "),
        (lambda blob: FLATBUFFER[:12], "the bytes are not an exported program of shardir or JAX; "),
        (lambda blob: b"\xff" * 16, "the bytes are not an exported program of shardir or JAX; "),
        (
            lambda blob: blob[:9],
            "the exported program is damaged: its end is missing; export it again",
        ),
        (
            lambda blob: blob[:-3],
            "the exported program is damaged: its end is missing; export it again",
        ),
        (
            lambda blob: blob + b"x",
            "the exported program is damaged: other bytes follow its end; export it again",
        ),
        (
            lambda blob: blob.replace(b"-1\n", b"-2\n", 1),
            "another version of shardir wrote the exported program; export it with this version",
        ),
        (
            lambda blob: b"ML\xefR" + bytes(20),
            "the bytes are the bytecode of a module, without the structure of its arguments; "
            "`shardir run` and `shardir opt` read it",
        ),
    ],
)
def test_other_bytes_are_errors(change: Any, fault: str) -> None:
    blob = bytes(export.export(sd.jit(lambda x: x + 1))(np.ones(2, "float32")).serialize())
    with pytest.raises(ExportedProgramError) as caught:
        export.deserialize(change(blob))
    assert str(caught.value).partition("\n")[0].startswith(fault)


@pytest.mark.parametrize(
    "changes",
    [
        {0: b"\0"},  # The table overlaps its own position.
        {0: b"\r"},  # The table is beyond the end.
        {0: b"\x0e", 14: b"\x06"},  # So are two bytes of its offset.
        {8: b"\2"},  # The list of fields lacks its size and that of the table.
        {8: b"\5"},  # An odd size.
        {8: b"\n"},  # The list of fields is beyond the end.
        {12: b"\x09"},  # The list of fields overlaps the position of the table.
        {12: b"\x14"},  # The list of fields is before the beginning.
        {12: b"\xff\xff\xff\xff"},
    ],
)
def test_bytes_that_are_no_flatbuffer_are_no_programs_of_jax(changes: dict[int, bytes]) -> None:
    blob = bytearray(FLATBUFFER)
    for at, new in changes.items():
        blob[at : at + len(new)] = new
    with pytest.raises(ExportedProgramError, match=r"^the bytes are not an exported program of s"):
        export.deserialize(blob)


def test_arguments_that_are_no_bytes_are_errors() -> None:
    values: list[Any] = ["text", None, 3, [1, 2]]
    for value in values:
        with pytest.raises(ArgumentError, match=r"^deserialize takes the bytes of serialize, got "):
            export.deserialize(value)


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("text", None, "text is None"),
        ("fun_name", 3, "fun_name is 3"),
        ("platforms", "cpu", "platforms is 'cpu'"),
        ("nr_devices", [], r"nr_devices is \[\]"),
        ("in_avals", [], "in_avals has 0 entries for 1 array"),
        ("out_avals", [], "out_avals has 0 entries for 1 array"),
    ],
)
def test_wrong_fields_are_errors(name: str, value: object, fault: str) -> None:
    blob = bytes(export.export(sd.jit(lambda x: x + 1))(np.ones(2, "float32")).serialize())
    start = len(SIGNATURE)
    header = json.loads(zlib.decompress(blob[start:])) | {name: value}
    changed = SIGNATURE + zlib.compress(json.dumps(header).encode())
    with pytest.raises(
        ExportedProgramError, match=f"^the exported program is damaged: {fault}; export it again"
    ):
        export.deserialize(changed)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_programs_take_and_return_random_keys(impl: str) -> None:
    """Their text has the words of keys: StableHLO has no element type of 128 bits."""
    key = sd.random.key(3, impl=impl)

    def draw(key: Any) -> Any:
        return sd.random.split(key, 2), sd.random.uniform(sd.random.fold_in(key, 3), (3,))

    found = export.export(sd.jit(draw))(key)
    again = export.deserialize(found.serialize())
    words = "tensor<ui64>" if impl == "threefry2x32" else "tensor<4xui32>"
    assert f"func.func @main(%key: {words}) -> " in found.mlir_module()
    keys, numbers = draw(key)
    for way in (found.call, again.call, sd.jit(again.call)):
        new_keys, drawn = way(key)
        assert new_keys.dtype == keys.dtype == again.out_avals[0].dtype
        np.testing.assert_array_equal(sd.random.key_data(new_keys), sd.random.key_data(keys))
        np.testing.assert_array_equal(drawn, numbers)
    with pytest.raises(ArgumentError) as caught:
        again.call(sd.random.key_data(key))
    assert (
        str(caught.value)
        .splitlines()[0]
        .startswith(
            f"argument 0 of draw was exported as {key.dtype} of shape (), got uint32 of shape "
        )
    )


def test_lowered_programs_state_the_element_types_of_keys() -> None:
    for impl in ("threefry2x32", "unsafe_rbg"):
        key = sd.random.key(0, impl=impl)
        assert sd.jit(sd.random.split).lower(key).out_info.dtype == key.dtype


def test_xla_draws_the_bits_of_keys_of_four_words() -> None:
    require("jax")
    import jax
    from jaxlib import _jax

    key = sd.random.key(3, impl="rbg")
    text = export.export(sd.jit(lambda k: sd.random.bits(k, (5, 8))))(key).mlir_module()
    device = jax.devices("cpu")[0]
    program = device.client.compile_and_load(
        text, _jax.DeviceList((device,)), _jax.CompileOptions()
    )
    (bits,) = program.execute([jax.device_put(np.asarray(sd.random.key_data(key)), device)])
    np.testing.assert_array_equal(np.asarray(bits), np.asarray(sd.random.bits(key, (5, 8))))
