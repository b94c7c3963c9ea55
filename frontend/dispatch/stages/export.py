"""Programs as artefacts: StableHLO text with the structure of arguments and results.

`export` traces a function into an artefact, `serialize` writes it to bytes, `deserialize` reads
them: the bytes of `serialize`, and those of `jax.export`, which need an installed JAX.
"""

import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from shardir import ops
from shardir.errors import count_noun
from shardir.frontend.absent_members import WithAbsentMembers
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array import Array
from shardir.frontend.arrays.numpy_conversion import abstract_of
from shardir.frontend.arrays.signature import ShapeDtypeStruct
from shardir.frontend.call_signatures import with_method_errors
from shardir.frontend.dispatch.jit import jit
from shardir.frontend.dispatch.stages.dialects import stablehlo_text
from shardir.frontend.dispatch.stages.exported_call import (
    ExportedProgramError as ExportedProgramError,
    call_program,
)
from shardir.frontend.dispatch.stages.exported_shardings import (
    UserShardings,
    argument_shardings,
    result_shardings,
)
from shardir.frontend.dispatch.stages.stages import Lowered
from shardir.frontend.errors import ArgumentError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief
from shardir.frontend.shardings.devices import default_backend
from shardir.frontend.shardings.mesh import Mesh
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.promotion import dtype_of, user_dtype
from shardir.frontend.transforms import jvp_vjp
from shardir.ir.module import Module, Op
from shardir.ir.operation import Dense
from shardir.ir.types import INEXACT
from shardir.passes.pipeline_parallelism.inline_pipelines import InlinePipelines
from shardir.stablehlo.bytecode import BYTECODE_SIGNATURE, BytecodeError, text_to_bytecode
from shardir.stablehlo.reader import read

if TYPE_CHECKING:
    from jax.export import Exported as JaxExported

SIGNATURE = b"shardir-export-1\n"
"""The first bytes of a serialized program."""


@with_method_errors
@dataclass(frozen=True, eq=False)
class Exported(WithAbsentMembers):
    """A program that `export` or `deserialize` returned."""

    fun_name: str
    """The name of the function."""
    in_tree: tree.PyTreeDef
    """The structure of the arguments, (positional, named)."""
    out_tree: tree.PyTreeDef
    """The structure of the result."""
    in_avals: tuple[ShapeDtypeStruct, ...]
    """The shape and the element type of each argument."""
    out_avals: tuple[ShapeDtypeStruct, ...]
    """The shape and the element type of each result."""
    platforms: tuple[str, ...]
    """The platforms for which the program was exported; its text is the same for all."""
    nr_devices: int
    """The number of devices of the program."""
    text: str = field(repr=False)
    """The program as StableHLO text, with Shardy's annotations."""
    function: UserFunction | None = field(default=None, repr=False)
    """The function from which the program was exported; `None` for a deserialized one."""

    def mlir_module(self) -> str:
        """Return the program as StableHLO text, with Shardy's annotations."""
        return self.text

    @property
    def mlir_module_serialized(self) -> bytes:
        """The program as StableHLO's portable bytecode, which jaxlib writes.

        Shardings are operations and attributes of Shardy, as in the bytecode of JAX. Raises
        `ExportedProgramError` if jaxlib is not installed.
        """
        try:
            return text_to_bytecode(self.text)
        except BytecodeError as error:
            raise ExportedProgramError(with_location(str(error))) from None

    disabled_safety_checks: ClassVar[tuple[()]] = ()
    """The checks that are disabled: none, because `export` has no checks."""

    def in_shardings_jax(self, mesh: Mesh) -> UserShardings:
        """Return the shardings of the arguments on a mesh of as many devices, `None` for arguments
        without one. Raises `ShardingError` if the mesh cannot state them."""
        return argument_shardings(read(self.text), mesh)

    def out_shardings_jax(self, mesh: Mesh) -> UserShardings:
        """Return the shardings of the results; see `in_shardings_jax`."""
        return result_shardings(read(self.text), mesh)

    def has_vjp(self) -> bool:
        """Return whether `vjp` has a result: if the program can be called in this process."""
        return self.function is not None or not read(self.text).meshes

    def vjp(self) -> "Exported":
        """Return the exported derivative in reverse mode.

        Its arguments are the leaves of the arguments, then a cotangent for each leaf of the result;
        its results are the gradients of the arguments. Raises `ArgumentError` for arguments and
        results that are integers, and `ExportedProgramError` for a deserialized program with
        shardings.
        """
        for each in (*self.in_avals, *self.out_avals):
            if dtype_of(each.dtype) not in INEXACT:
                raise ArgumentError(
                    with_location(
                        f"{self.fun_name} has an argument or a result of type {each.dtype}, which "
                        "has no derivative; export jit(grad(fun, argnums)) instead"
                    )
                )

        def vjp(*given: PyTree) -> PyTree:
            count = len(self.in_avals)

            def call_leaves(*leaves: PyTree) -> list[PyTree]:
                args, options = tree.unflatten(self.in_tree, leaves)
                return tree.leaves(self.call(*args, **options))

            return jvp_vjp.vjp(call_leaves, *given[:count])[1](list(given[count:]))

        vjp.__name__ = f"{self.fun_name}_vjp"
        return export(jit(vjp), platforms=self.platforms)(*self.in_avals, *self.out_avals)

    def call(self, *args: PyTree, **options: PyTree) -> PyTree:
        """Call the program; inside of a trace, it becomes a part of the traced program.

        The arguments must have the structure, the shapes and the element types with which it was
        exported. Raises `ArgumentError` otherwise, and `ExportedProgramError` for a deserialized
        program with shardings.
        """
        leaves, structure = tree.flatten((args, options))
        if structure != self.in_tree:
            raise ArgumentError(
                with_location(
                    f"{self.fun_name} was exported for arguments of the structure {self.in_tree}, "
                    f"got {structure}"
                )
            )
        for i, (leaf, expected) in enumerate(zip(leaves, self.in_avals, strict=True)):
            given, dtype = abstract_of(leaf).type, user_dtype(abstract_of(leaf).type.dtype)
            if (given.shape, dtype) != (expected.shape, expected.dtype):
                raise ArgumentError(
                    with_location(
                        f"argument {i} of {self.fun_name} was exported as {expected.dtype} of "
                        f"shape {expected.shape}, got {dtype} of shape {given.shape}"
                    )
                )
        if self.function is not None:
            return self.function(*args, **options)
        dtypes = tuple(dtype_of(each.dtype) for each in self.out_avals)
        return tree.unflatten(self.out_tree, list(call_program(self.text, dtypes, *leaves)))

    def serialize(self, vjp_order: int = 0) -> bytearray:
        """Return the program as bytes, which `deserialize` reads, also in another process.

        They consist of the text and of the structures, whose containers must be dictionaries with
        texts as keys, lists, tuples and `None`. They contain no derivatives: `vjp_order` is 0.
        Raises `ExportedProgramError` for others.
        """
        if vjp_order:
            raise ExportedProgramError(
                with_location(
                    f"serialize cannot include derivatives (vjp_order is {vjp_order!r}); export "
                    "jit(value_and_grad(fun)) in addition"
                )
            )
        header = {
            "fun_name": self.fun_name,
            "in_tree": _describe_structure(self.in_tree),
            "out_tree": _describe_structure(self.out_tree),
            "in_avals": [(each.shape, str(each.dtype)) for each in self.in_avals],
            "out_avals": [(each.shape, str(each.dtype)) for each in self.out_avals],
            "platforms": self.platforms,
            "nr_devices": self.nr_devices,
            "text": self.text,
        }
        return bytearray(SIGNATURE + zlib.compress(json.dumps(header).encode()))


@with_argument_errors
def export(
    fun_jit: UserFunction,
    *,
    platforms: Sequence[str] | None = None,
    disabled_checks: Sequence[object] = (),
) -> Callable[..., Exported]:
    """Return a function of arguments, arrays or `ShapeDtypeStruct`s, that returns the program.

    `fun_jit` is the result of `jit`. `platforms` are names that the artefact states. Raises
    `ArgumentError` for another function and for `disabled_checks`, because programs have no
    custom calls that need a check.
    """
    if not hasattr(fun_jit, "lower"):
        raise ArgumentError(
            with_location(f"export takes the result of jit, got {brief(fun_jit)}; write jit(fun)")
        )
    if tuple(disabled_checks):
        raise ArgumentError(
            with_location("export has no checks that can be disabled; leave disabled_checks out")
        )

    def export_call(*args: PyTree, **options: PyTree) -> Exported:
        lowered: Lowered = fun_jit.lower(*args, **options)
        module = InlinePipelines()(_with_captured_constants(lowered.module, lowered.captured))
        params = module.main.body.params
        mesh = module.meshes[0] if module.meshes else None
        return Exported(
            getattr(fun_jit, "__name__", "function"),
            lowered.in_tree,
            lowered.out_tree,
            tuple(
                ShapeDtypeStruct(each.type.shape, user_dtype(each.type.dtype)) for each in params
            ),
            tuple(ShapeDtypeStruct(x.shape, x.dtype) for x in tree.leaves(lowered.out_info)),
            (default_backend(),) if platforms is None else tuple(platforms),
            1 if mesh is None else mesh.size,
            stablehlo_text(module),
            fun_jit,
        )

    return export_call


@with_argument_errors
def default_export_platform() -> str:
    """Return the platform that `export` states by default."""
    return default_backend()


def _with_captured_constants(module: Module, captured: Sequence[Array]) -> Module:
    """Return the module with the function `main` whose captured arrays are constants."""
    body = module.main.body
    own = len(body.params) - len(captured)
    constants = tuple(
        Op(ops.constant, (), (replace(param, sharding=None),), {"value": Dense(array.read())}, ())
        for param, array in zip(body.params[own:], captured, strict=True)
    )
    body = replace(body, params=body.params[:own], ops=(*constants, *body.ops))
    main = replace(module.main, name="main", body=body)
    others = tuple(each for each in module.functions if each is not module.main)
    return replace(module, functions=(main, *others))


def _describe_structure(structure: tree.PyTreeDef) -> object:
    """Return a structure in terms of JSON; leaves are numbers."""

    def describe(x: PyTree) -> object:
        if x is None or isinstance(x, int):
            return x
        if type(x) is dict and all(isinstance(key, str) for key in x):
            return ["dict", {key: describe(value) for key, value in x.items()}]
        if type(x) in (list, tuple):
            return [type(x).__name__, [describe(each) for each in x]]
        raise ExportedProgramError(
            with_location(
                "arguments and results of a serialized program are in dictionaries with texts as "
                f"keys, lists and tuples, got {brief(x)}"
            )
        )

    return describe(tree.unflatten(structure, range(structure.num_leaves)))


def _read_structure(described: object) -> tree.PyTreeDef:
    def build(x: object) -> object:
        if not isinstance(x, list):
            return x
        kind, parts = x
        if kind == "dict":
            return {key: build(value) for key, value in parts.items()}
        made = [build(each) for each in parts]
        return tuple(made) if kind == "tuple" else made

    return tree.flatten(build(described))[1]


@with_argument_errors
def deserialize(blob: bytes | bytearray) -> Exported:
    """Return the program of `serialize`; programs of `jax.export` need an installed JAX.

    Raises `ExportedProgramError` for other bytes, and `ArgumentError` for an argument that is not
    bytes.
    """
    if not isinstance(blob, (bytes, bytearray, memoryview)):
        raise ArgumentError(
            with_location(f"deserialize takes the bytes of serialize, got {brief(blob)}")
        )
    data = bytes(blob)
    if data.startswith(SIGNATURE):
        return _deserialize_own(data[len(SIGNATURE) :])
    if fault := _foreign_bytes_fault(data):
        raise ExportedProgramError(with_location(fault))
    return _deserialize_with_jax(data)


def _deserialize_own(compressed: bytes) -> Exported:
    decompressor = zlib.decompressobj()
    try:
        text = decompressor.decompress(compressed)
        if not decompressor.eof:
            raise ValueError("its end is missing")
        if decompressor.unused_data:
            raise ValueError("other bytes follow its end")
        return _read_program(json.loads(text))
    except (KeyError, RecursionError, TypeError, ValueError, zlib.error) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else error
        raise ExportedProgramError(
            with_location(f"the exported program is damaged: {reason}; export it again")
        ) from None


def _foreign_bytes_fault(data: bytes) -> str | None:
    """Return why bytes without `SIGNATURE` are no program, or `None` if JAX may have written them.

    JAX writes a FlatBuffer: it begins with the position of a table, which refers to the list of its
    fields.
    """
    name = SIGNATURE.rpartition(b"-")[0]
    if data.startswith(name):
        return "another version of shardir wrote the exported program; export it with this version"
    if data and SIGNATURE.startswith(data):
        return "the exported program is damaged: its end is missing; export it again"
    if data.startswith(BYTECODE_SIGNATURE):
        return (
            "the bytes are the bytecode of a module, without the structure of its arguments; "
            "`shardir run` and `shardir opt` read it"
        )
    if not _is_flatbuffer(data):
        return "the bytes are not an exported program of shardir or JAX; pass those of serialize()"
    return None


def _is_flatbuffer(data: bytes) -> bool:
    """Return whether bytes begin with the position of a table, and its list of fields exists."""
    table = int.from_bytes(data[:4], "little")
    if not 4 <= table <= len(data) - 4:
        return False
    fields = table - int.from_bytes(data[table : table + 4], "little", signed=True)
    if not 4 <= fields <= len(data) - 4:
        return False
    size = int.from_bytes(data[fields : fields + 2], "little")
    return size >= 4 and size % 2 == 0 and fields + size <= len(data)


def _read_program(header: dict[str, Any]) -> Exported:
    def avals(name: str, structure: tree.PyTreeDef) -> tuple[ShapeDtypeStruct, ...]:
        made = tuple(ShapeDtypeStruct(shape, dtype) for shape, dtype in header[name])
        if len(made) != structure.num_leaves:
            listed = count_noun(len(made), "entry", "entries")
            raise ValueError(f"{name} has {listed} for {count_noun(structure.num_leaves, 'array')}")
        return made

    for name, kind in (("fun_name", str), ("text", str), ("platforms", list), ("nr_devices", int)):
        if not isinstance(header[name], kind):
            raise ValueError(f"{name} is {brief(header[name])}")
    in_tree, out_tree = _read_structure(header["in_tree"]), _read_structure(header["out_tree"])
    return Exported(
        header["fun_name"],
        in_tree,
        out_tree,
        avals("in_avals", in_tree),
        avals("out_avals", out_tree),
        tuple(header["platforms"]),
        header["nr_devices"],
        header["text"],
    )


def _deserialize_with_jax(data: bytes) -> Exported:
    try:
        import jax  # An optional dependency.
        from jax import export as jax_export
    except ImportError:
        raise ExportedProgramError(
            with_location(
                "the bytes are not a program of shardir.export; programs of jax.export need JAX, "
                "which is not installed: pip install 'shardir[jax]'"
            )
        ) from None
    try:
        program = jax_export.deserialize(bytearray(data))
    except ImportError as error:  # JAX reads the bytes with another package.
        raise ExportedProgramError(
            with_location(
                "the bytes are not a program of shardir.export, and JAX needs another package to "
                f"read them as one of jax.export: {error}"
            )
        ) from None
    except Exception as error:
        raise ExportedProgramError(
            with_location(f"the bytes are not an exported program: {error}")
        ) from None
    if fault := _jax_program_fault(program):
        raise ExportedProgramError(with_location(f"the program {program.fun_name} {fault}"))

    def structure(theirs: "jax.tree_util.PyTreeDef") -> tree.PyTreeDef:
        return tree.flatten(jax.tree.unflatten(theirs, range(theirs.num_leaves)))[1]

    def avals(theirs: "Iterable[jax.core.ShapedArray]") -> tuple[ShapeDtypeStruct, ...]:
        return tuple(ShapeDtypeStruct(each.shape, each.dtype) for each in theirs)

    return Exported(
        program.fun_name,
        structure(program.in_tree),
        structure(program.out_tree),
        avals(program.in_avals),
        avals(program.out_avals),
        tuple(program.platforms),
        program.nr_devices,
        program.mlir_module(),
    )


def _jax_program_fault(program: "JaxExported") -> str | None:
    """Return why a program of JAX cannot be called with the arguments for which it was exported."""
    kept, count = tuple(program.module_kept_var_idx), len(program.in_avals)
    if kept != tuple(range(count)):
        unused = count_noun(count - len(kept), "argument")
        return (
            f"does not use {unused}, which its text lacks; export it from jit(fun, "
            "keep_unused=True)"
        )
    for aval in (*program.in_avals, *program.out_avals):
        if not all(isinstance(size, int) for size in aval.shape):
            return f"has sizes that are symbols, {aval.shape}; export it for a shape of numbers"
    if len(program.platforms) > 1:
        return (
            f"is one for the platforms {', '.join(program.platforms)}, so that its text has the "
            "number of the platform as an argument; export it for one platform"
        )
    return None
