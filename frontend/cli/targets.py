"""Targets of the commands: a file, or a function on an abstract mesh.

    shardir explain mymodule:train_step --mesh data=16,model=16

The function is traced for `example_args` of its module (or `--args`): a tuple of arrays or of
ShapeDtypeStructs. The shardings of the arguments are in `example_specs` (or `--specs`): a pytree
prefix of PartitionSpecs, or None. Both may be functions, which are called with the mesh entered.
A function is treated as one of JAX if its module refers to no object of shardir.
"""

import ast
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from shardir.errors import ShardirError, bound_message, suggest_name
from shardir.frontend.arrays.device_transfer import device_put
from shardir.frontend.arrays.numpy_conversion import abstract_of
from shardir.frontend.arrays.signature import ShapeDtypeStruct
from shardir.frontend.cli.files import (
    definition_locations,
    parse_single_module,
    read_text,
)
from shardir.frontend.cli.options import CommandError
from shardir.frontend.config import config, set_cpu_devices
from shardir.frontend.dispatch.jit import jit
from shardir.frontend.dispatch.programs.runnable import default_pipeline
from shardir.frontend.dispatch.stages.stages import Lowered
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.prefix import broadcast_prefix
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief, quote_message
from shardir.frontend.shardings.mesh import AbstractMesh, Mesh, make_mesh
from shardir.frontend.shardings.partition_spec import PartitionSpec
from shardir.frontend.shardings.sharding import NamedSharding
from shardir.frontend.source_locations import (
    format_error_location,
    has_location,
    refresh_working_directory,
    underline,
)
from shardir.interpret.random_arguments import random_arguments
from shardir.ir.dtypes import KEYS
from shardir.ir.module import Loc, Module
from shardir.ir.types import NumpyArray
from shardir.passes.pipeline import DEFAULT_STEP, Pipeline
from shardir.text.number_text import parse_natural_number

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
ARGS, SPECS = "example_args", "example_specs"


@dataclass(frozen=True)
class CommandTarget:
    """A program, the source locations of its values, and the traced function from which it was
    lowered.

    `arguments` holds the elements of each parameter that the example arguments or the function
    determine, and `None` for the others. `name` and `text` are those of its file, if it is one.
    """

    module: Module
    locations: Mapping[tuple[str, str], Loc] | None
    lowered: Lowered | None = None
    arguments: tuple[NumpyArray | None, ...] = ()
    name: str = ""
    text: str | None = None

    def pipeline(self, passes: str | None) -> str:
        """Return the pipeline that the option `--passes` states, by default the one with which the
        program is compiled."""
        lowered = self.lowered_with(passes)
        if lowered is not None:
            return lowered.pipeline
        return str(Pipeline.parse(DEFAULT_STEP if passes is None else passes, default_pipeline()))

    def lowered_with(self, passes: str | None) -> Lowered | None:
        """Return the lowered function with the pipeline that the option `--passes` states; `None`
        for a file."""
        if passes is None or self.lowered is None:
            return self.lowered
        Pipeline.parse(passes)  # Raises an error that names no function of Python.
        return self.lowered.with_passes(passes)

    def fill_arguments(self, given: Sequence[NumpyArray]) -> list[NumpyArray]:
        """Return the arguments of the program: those that it determines, else the given ones."""
        known = self.arguments or (None,) * len(given)
        return [x if value is None else value for x, value in zip(given, known, strict=True)]


@dataclass(frozen=True)
class _NamedObject:
    """An object of a user's module, with the place of its definition for errors."""

    module: ModuleType
    name: str
    value: PyTree

    @contextmanager
    def errors_at_definition(self) -> Iterator[None]:
        """Add the line of the definition to errors that show no line."""
        try:
            yield
        except ShardirError as error:
            if has_location(str(error)) or (place := self._find_definition()) is None:
                raise
            refresh_working_directory()
            raise CommandError(f"{error}\n{underline(*place)}") from error

    def call(self, failure: str) -> PyTree:
        """Return the object, or its result if it is a function; errors begin with `failure`."""
        if not callable(self.value):
            return self.value
        with as_command_errors(failure):
            return self.value()

    def _find_definition(self) -> tuple[Loc, int] | None:
        """Return the location of the last definition in the module, and its width."""
        file = self.module.__file__
        try:
            body = ast.parse(Path(file or "").read_text(encoding="utf-8")).body
        except (OSError, ValueError, SyntaxError):
            return None
        for statement in reversed(body):
            names = {node.id for node in _assigned_names(statement)}
            if self.name in names | {getattr(statement, "name", "")}:
                path = Path(str(file)).absolute()
                here = Path.cwd()
                shown = path.relative_to(here) if path.is_relative_to(here) else path
                loc = Loc(str(shown), statement.lineno, statement.col_offset + 1)
                return loc, len(self.name)
        return None


def _assigned_names(statement: ast.stmt) -> Iterator[ast.Name]:
    """Yield the names that an assignment binds."""
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    for target in targets:
        yield from (node for node in ast.walk(target) if isinstance(node, ast.Name))


def is_function_name(target: str) -> bool:
    """Return whether a target is `module:function` and no file."""
    return _FUNCTION.fullmatch(target) is not None and not os.path.exists(target)


def check_file_options(target: str, mesh: str | None, args: str | None, specs: str | None) -> None:
    """Raise `CommandError` for an option of functions with a file."""
    for option, given_value in (("--mesh", mesh), ("--args", args), ("--specs", specs)):
        if given_value is not None:
            raise CommandError(
                f"{option} is for functions, and {target!r} is a file; name a function as "
                "mymodule:train_step"
            )


def load_target(
    target: str, mesh: str | None, args: str | None, specs: str | None
) -> CommandTarget:
    """Return the program that `target` names: a file, or `module:function`."""
    if not is_function_name(target):
        check_file_options(target, mesh, args, specs)
        text, name = read_text(target)
        places = definition_locations(text, name)
        return CommandTarget(parse_single_module(text, name), places, name=name, text=text)
    with ExitStack() as stack:
        opened = _open_function(stack, target, mesh, args, specs)
        with as_command_errors(f"{target} cannot be traced"):
            lowered: Lowered = opened.traced.lower(*opened.placed)
        meshes = lowered.module.meshes
        if mesh is not None and not meshes:
            raise CommandError(
                f"{target} has no shardings on {mesh}; define {opened.module.__name__}.{SPECS} as "
                "the specs of its arguments, or name some with --specs"
            )
        if mesh is not None and parse_mesh(mesh).shape_tuple not in {m.axes for m in meshes}:
            used = " and ".join(",".join(f"{k}={n}" for k, n in each.axes) for each in meshes)
            raise CommandError(
                f"{target} has no shardings on --mesh {mesh}; its shardings are on {used}"
            )
    return CommandTarget(
        lowered.module, lowered.user_locations, lowered, _known_elements(lowered, opened.given)
    )


def load_call(
    stack: ExitStack,
    target: str,
    mesh: str | None,
    args: str | None,
    specs: str | None,
    seed: int,
) -> tuple[UserFunction, tuple[PyTree, ...]]:
    """Return the function that `target` names, and its arguments on virtual CPU devices.

    Arguments of which the example has a shape only are random. The mesh and the settings of JAX are
    in force until `stack` is closed.
    """
    if not is_function_name(target):
        raise _not_a_function_error(target)
    opened = _open_function(stack, target, mesh, args, specs, with_devices=True)
    with as_command_errors(f"{target} cannot be traced"):
        module = opened.traced.lower(*opened.placed).module
    numbers = random_arguments(module, seed)
    leaves, structure = tree.flatten(opened.placed)
    examples = tree.leaves(opened.given)
    arrays = [
        leaf
        if not _has_shape_only(leaf)
        else device_put(
            numbers[i] if _has_shape_only(example) else example, getattr(leaf, "sharding", None)
        )
        for i, (leaf, example) in enumerate(zip(leaves, examples, strict=True))
    ]
    return opened.traced, tree.unflatten(structure, arrays)


def load_function(
    stack: ExitStack, target: str, mesh: str, args: str | None, specs: str | None
) -> tuple[Any, tuple[Any, ...], Mesh]:
    """Return the function that `target` names, its example arguments, and the abstract mesh.

    The arguments have the shardings of the specs, if there are any. The mesh and the settings of
    JAX are in force until `stack` is closed.
    """
    if not is_function_name(target):
        raise _not_a_function_error(target)
    opened = _open_function(stack, target, mesh, args, specs)
    return opened.traced, opened.placed, parse_mesh(mesh)


@dataclass(frozen=True)
class _OpenedFunction:
    """A function with the example arguments, as given and with shardings."""

    module: ModuleType
    traced: Any
    given: tuple[PyTree, ...]
    placed: tuple[PyTree, ...]


def _open_function(
    stack: ExitStack,
    target: str,
    mesh: str | None,
    args: str | None,
    specs: str | None,
    *,
    with_devices: bool = False,
) -> _OpenedFunction:
    """Return the function that `target` names; the mesh and the settings of JAX are in force until
    `stack` is closed."""
    module, function = import_object(target)
    if not callable(function):
        raise CommandError(f"{target} is {brief(function)}, which is not a function")
    used = None
    if mesh is not None:
        used = stack.enter_context(parse_mesh(mesh, with_devices=with_devices))
    known = _option_object(args, module, ARGS)
    if known is None:
        raise CommandError(
            f"{target} has no example arguments; define {module.__name__}.{ARGS} as a "
            "tuple of its arguments, or name one with --args"
        )
    of_jax = _is_jax_function(function, module)
    if of_jax:
        # JAX is an optional dependency.
        from shardir.frontend.interop.jax_tracing import apply_settings_to_jax

        stack.enter_context(apply_settings_to_jax())
    example = known.call(f"the example arguments of {target} cannot be made")
    given: tuple[PyTree, ...] = example if isinstance(example, tuple) else (example,)
    stated = _option_object(specs, module, SPECS)
    placed = given
    if (
        stated is not None
        and (prefix := stated.call(f"the specs of {target} cannot be made")) is not None
    ):
        if used is None:
            raise CommandError(
                f"{stated.name} need a mesh; pass one, as in --mesh data=16,model=16"
            )
        with stated.errors_at_definition(), as_command_errors(f"{target} cannot be traced"):
            placed = _shard_arguments(given, prefix, used, stated.name)
    return _OpenedFunction(module, _traceable(function, of_jax), given, placed)


def _known_elements(lowered: Lowered, given: tuple[PyTree, ...]) -> tuple[NumpyArray | None, ...]:
    """Return the elements of each parameter, or `None` where the example has a shape only."""
    params = lowered.module.main.body.params
    captured = [array.read() for array in lowered.captured]
    leaves = tree.leaves(given)
    count = len(params) - len(captured)
    if len(leaves) != count:  # The function has static arguments.
        leaves = [None] * count
    elements = [
        None
        if _has_shape_only(leaf) or param.type.dtype in KEYS
        else np.asarray(leaf).astype(param.type.numpy, copy=False)
        for leaf, param in zip(leaves, params, strict=False)
    ]
    return (*elements, *captured)


def _has_shape_only(leaf: object) -> bool:
    """Return whether an example argument has no elements."""
    return isinstance(leaf, ShapeDtypeStruct) or not hasattr(leaf, "__array__")


@contextmanager
def as_command_errors(says: str) -> Iterator[None]:
    """Convert an error of the user's program to one of the command, with the user's line.

    `says` states what the command could not do.
    """
    try:
        yield
    except ShardirError:
        raise
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        message = f"{says}: {type(error).__name__}: {quote_message(first)}"
        # A syntax error states its own line; the location of its traceback is in importlib.
        location = "" if isinstance(error, SyntaxError) else format_error_location(error)
        raise CommandError(message + location) from error


def parse_mesh(text: str, *, with_devices: bool = False) -> Mesh:
    """Return the mesh of a text such as `data=16,model=16`; raises `CommandError`."""
    axes = [part.partition("=") for part in text.split(",")]
    sizes = []
    for name, equals, size in axes:
        number = parse_natural_number(size.strip())
        if not (name.strip().isidentifier() and equals and number):
            raise CommandError(f"{text!r} is not a mesh; write it as data=16,model=16")
        sizes.append(number)
    names = tuple(name.strip() for name, _, _ in axes)
    if with_devices:
        if prod(sizes) > config.num_cpu_devices:
            set_cpu_devices(prod(sizes))
        return make_mesh(tuple(sizes), names)
    return AbstractMesh(tuple(sizes), names)


def _not_a_function_error(target: str) -> CommandError:
    return CommandError(f"{target!r} is not a function; name one as mymodule:train_step")


def import_object(target: str) -> tuple[ModuleType, Any]:
    """Return the module and the object that `module:name` names."""
    name, _, path = target.partition(":")
    if not all(part.isidentifier() for part in (*name.split("."), *path.split("."))):
        raise _not_a_function_error(target)
    if "" not in sys.path:
        sys.path.insert(0, "")  # As `python -m` does: modules of this folder.
    with as_command_errors(f"{name} cannot be imported"):
        try:
            module = import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise
            hint = f"is {target!r} a file?"
            if name.endswith(".py") and Path(name).is_file():
                hint = f"to name a function of the file {name}, write {name[:-3]}:{path}"
            raise CommandError(
                f"there is no module {name!r} to import from this folder; {hint}"
            ) from None
    found: Any = module
    for part in path.split("."):
        with as_command_errors(f"{target} cannot be found"):
            is_there = hasattr(found, part)
        if not is_there:
            hint = suggest_name(part, dir(found)) or _list_functions(module)
            raise CommandError(f"{name} has no {path!r}; {hint}")
        found = getattr(found, part)
    return module, found


def _list_functions(module: ModuleType) -> str:
    """Return the functions that a module defines, as the end of an error."""
    names = [
        name
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", None) == module.__name__
    ]
    return bound_message(f"it defines {', '.join(names) or 'no function'}")


def _option_object(named: str | None, module: ModuleType, usual: str) -> _NamedObject | None:
    """Return the object that an option names, or the default one of the function's module, or
    `None`."""
    if named is not None:
        target = named if ":" in named else f"{module.__name__}:{named}"
        owner, value = import_object(target)
        return _NamedObject(owner, target.partition(":")[2], value)
    return _NamedObject(module, usual, getattr(module, usual)) if hasattr(module, usual) else None


def _traceable(function: UserFunction, of_jax: bool) -> Any:
    """Return the function with a method `lower`."""
    if of_jax:
        # JAX is an optional dependency.
        from shardir.frontend.interop.imported_function import from_jax

        return from_jax(function)
    return function if hasattr(function, "lower") else jit(function)


def _is_jax_function(function: UserFunction, module: ModuleType) -> bool:
    """Return whether JAX is installed and the module of a function refers to no object of
    shardir."""
    kind = type(function).__module__.partition(".")[0]
    if kind in ("jax", "jaxlib", "equinox", "flax", "shardir"):
        return kind != "shardir"

    def home(x: object) -> str:
        name = x.__name__ if isinstance(x, ModuleType) else getattr(x, "__module__", None)
        return str(name).partition(".")[0]

    return all(home(x) != "shardir" for x in vars(module).values()) and _has_jax()


def _has_jax() -> bool:
    return find_spec("jax") is not None


def _shard_arguments(
    args: tuple[PyTree, ...], specs: object, mesh: Mesh, name: str
) -> tuple[PyTree, ...]:
    """Return structs of the arguments, with shardings on the mesh by the specs called `name`."""
    leaves, structure = tree.flatten(args)

    def is_spec(x: object) -> bool:
        return x is None or isinstance(x, PartitionSpec) or _is_jax_spec(x)

    entries = broadcast_prefix(
        tuple(specs) if isinstance(specs, list) else specs, args, is_spec, name
    )
    return tuple(
        tree.unflatten(
            structure,
            [_sharded_struct(x, spec, mesh) for x, spec in zip(leaves, entries, strict=True)],
        )
    )


def _is_jax_spec(spec: object) -> bool:
    """Return whether `spec` is a spec of JAX."""
    return type(spec).__module__.partition(".")[0] == "jax"


def _sharded_struct(x: PyTree, spec: PyTree, mesh: Mesh) -> PyTree:
    if spec is None or not hasattr(x, "shape"):
        return x
    if _is_jax_spec(spec):
        # JAX is an optional dependency.
        from shardir.frontend.interop.jax_shardings import convert_spec

        spec = convert_spec(spec)
    kind = abstract_of(x).type if not hasattr(x, "dtype") else None
    dtype = x.dtype if kind is None else kind.numpy
    return ShapeDtypeStruct(x.shape, dtype, sharding=NamedSharding(mesh, spec))
