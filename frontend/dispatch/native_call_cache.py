"""Native call cache: repeats calls whose cache key was seen before without running Python code.

The cache key of a call consists of the signatures of its arrays, the types of its numbers, the
values of all other arguments, and the trace context: settings, mesh, registered rules, execution
context. `insert_call` adds an entry for one call. If the arguments cannot be identified in the
leaves of the launch, no entry is added, and Python code continues to run such calls.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shardir.backends.base import Launch
from shardir.backends.cpu.dispatch.launch import ArrayImport, import_row
from shardir.backends.native import native
from shardir.frontend.arrays.array import Array
from shardir.frontend.dispatch.call_table import (
    CONTEXT_VARIABLES,
    CURRENT_TRACE,
    PROCESS_RULES,
    PROCESS_SCOPES,
)
from shardir.frontend.dispatch.recorded_calls import RecordedCall, recorded_calls
from shardir.frontend.dispatch.scalar_arguments import NUMBER_TYPES, number_as_array
from shardir.frontend.dispatch.traced_calls import signature_of_leaf
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.dict_order import sort_keys
from shardir.frontend.pytree_types import PyTree

if TYPE_CHECKING:
    from shardir.backends._native import CallCache, CallTable

MEMORY_KINDS: dict[type, str] = {Array: "array", np.ndarray: "numpy", bytes: "bytes"}
"""Types that the native tier reads from memory, and the kind of argument of each."""
NATIVE_NUMBER_DTYPES = {"bool", "i32", "i64", "f32", "f64"}
"""Element types that the native tier makes from Python numbers."""

_TRACE_CONTEXT = (
    (CURRENT_TRACE, recorded_calls),
    CONTEXT_VARIABLES,
    PROCESS_SCOPES,
    PROCESS_RULES,
)

StaticParameters = tuple[Iterable[int], Iterable[str]] | None
"""The positions and names of static arguments; `None`: all arguments but arrays are static."""


class ArgumentSource(NamedTuple):
    """The source of an argument of a launch: its kind, the index of its leaf in the call, its
    address if it is constant, and its import if it is a NumPy array."""

    kind: str
    leaf: int
    constant: int = 0
    entry: ArrayImport | None = None


def call_cache_of(
    callable_object: Any,
    static: StaticParameters,
    table: "CallTable | None" = None,
    is_swapped: bool = False,
) -> "CallCache":
    """Return the call cache of an object of a `vectorcall_class`.

    `table` is the table of a function with the same calls, `is_swapped` exchanges its two
    arguments. An object keeps the cache that it has.
    """
    if callable_object.call_cache is None:
        callable_object.call_cache = native.CallCache(
            native.CallTable() if table is None else table,
            _TRACE_CONTEXT,
            None if static is None else sorted(static[0]),
            None if static is None else sorted(static[1]),
            is_swapped,
        )
    found: CallCache = callable_object.call_cache
    return found


def insert_call(
    callable_object: object,
    static: StaticParameters,
    launch: Launch,
    structure: tree.PyTreeDef | None,
    args: tuple[PyTree, ...],
    options: dict[str, PyTree],
    leaves: Sequence[PyTree],
) -> None:
    """Insert a call into the native call cache; the launch takes `leaves` in their order."""
    if native is None or type(launch) is not native.Launch:
        return
    cache = call_cache_of(callable_object, static)
    if not cache.table.should_insert():
        return
    found = cache.key(args, options)
    sources = None
    if found is not None and len(found[1]) == len(leaves):
        sources = _leaf_sources(list(map(id, found[1])), args, options, leaves)
    if found is None or sources is None:
        cache.table.failed_inserts += 1
    else:
        kept: list[object] = []
        _keep_key_objects((args, options), kept)
        _insert(cache, found[0], launch, sources, structure, kept)


def _insert(
    cache: "CallCache",
    key: bytes,
    launch: "native.Launch",
    sources: Sequence[ArgumentSource],
    structure: tree.PyTreeDef | None,
    kept: list[object],
) -> None:
    """Insert a call whose arguments have these sources, unless Python code must import one.

    The first sources are those of the arguments of the launch; the leaves of the others must be
    present.
    """
    launch_arguments = launch.arguments
    # Other code may write into NumPy arrays, so a result that aliases one refers to a copy.
    aliased = {-1 - result.block for result in launch.results if result.block < 0}
    rows = []
    for k, source in enumerate(sources):
        argument = launch_arguments[k] if k < len(launch_arguments) else None
        kind, entry = source.kind, None
        # The readers of some bool arguments treat any nonzero byte as true.
        if argument is not None and argument.truth and source.entry is not None:
            kind = "numpy"
        if kind == "import" or (k in aliased and kind not in ("array", "bytes")):
            entry = None if source.entry is None else import_row(source.entry)
            if entry is None:
                return
            kind = "import"
        slot, shape = (-1, None) if argument is None else (argument.slot, argument.shape)
        rows.append((slot, kind, source.leaf, source.constant, shape, entry))
    # The key refers to the values of the trace context, too.
    context = [variable.get() for variable in _TRACE_CONTEXT[1]]
    keep = kept, context, tuple(_TRACE_CONTEXT[2])
    cache.insert(key, launch, tuple(rows), _result_builder(structure), keep)


def with_distinct_arrays(
    args: tuple[object, ...], options: dict[str, object], leaves: Sequence[object]
) -> tuple[tuple[PyTree, ...], dict[str, PyTree], Sequence[PyTree]]:
    """Return an equivalent call with a distinct array for each leaf, to identify the arguments.

    The call itself is returned where no leaf occurs twice. Leaves of other types are not copied.
    """
    if len(set(map(id, leaves))) == len(leaves):
        return args, options, leaves
    others = _copy_arrays(args), _copy_arrays(options)
    found, _ = tree.flatten(others)
    return (*others, found) if len(found) == len(leaves) else (args, options, leaves)


def _copy_arrays(x: PyTree) -> PyTree:
    """Return containers of built-in types with new array objects that share the storage."""
    kind = type(x)
    if kind is Array:
        return Array(x.signature, x.sharding, x.checked_storage())
    if kind is dict:
        return {key: _copy_arrays(each) for key, each in x.items()}
    return kind(map(_copy_arrays, x)) if kind is list or kind is tuple else x


def _leaf_sources(
    seen: Sequence[int],
    args: tuple[object, ...],
    options: dict[str, object],
    leaves: Sequence[object],
) -> list[ArgumentSource] | None:
    """Return the source of each leaf among the leaves that native code finds, or `None` if
    unknown."""
    by_order = list(map(id, leaves))
    numbers = {id(x): x for x in (*args, *options.values()) if type(x) in NUMBER_TYPES}
    for k, leaf in enumerate(leaves):
        if seen[k] in numbers and number_as_array(numbers[seen[k]]) is leaf:
            by_order[k] = seen[k]
    if seen == by_order:
        by_name = list(options) != sorted(options) or _contains_dict((args, *options.values()))
        if by_name and len(set(seen)) < len(seen):
            return None  # Equal leaves could be in another order in another call.
        order = list(range(len(seen)))
    else:
        if len(set(seen)) < len(seen) or {*seen} != {*by_order}:
            return None
        place = {address: k for k, address in enumerate(seen)}
        order = [place[address] for address in by_order]
    rows = []
    for leaf, k in zip(leaves, order, strict=True):
        row = _memory_source(leaf, k) if seen[k] == id(leaf) else None
        if row is None:
            # The leaf is a Python number, or the array made from one.
            kind = signature_of_leaf(leaf).abstract.type.dtype
            if kind not in NATIVE_NUMBER_DTYPES:
                return None
            row = ArgumentSource(kind, k)
        rows.append(row)
    return rows


def _memory_source(leaf: object, number: int) -> ArgumentSource | None:
    """Return the row of a leaf that native code reads from memory, or `None`."""
    kind = MEMORY_KINDS.get(type(leaf))
    if type(leaf) is not np.ndarray:
        return None if kind is None else ArgumentSource(kind, number)
    entry = ArrayImport(leaf.shape, leaf.dtype, signature_of_leaf(leaf).abstract.type.numpy)
    read = entry.source_dtype == entry.dtype and entry.source_dtype != np.bool_
    kind = "numpy" if read else "import"
    return ArgumentSource(kind, number, entry=entry)


def insert_composed_call(
    cache: "CallCache",
    made: object,
    did: RecordedCall,
    args: tuple[object, ...],
    options: dict[str, object],
    unused: bool,
    blind: bool,
) -> None:
    """Insert a call of a composed function that made one recorded call and returned its result.

    The arrays of the recorded call must be arguments of the outer call. With `unused`,
    the first argument may be inspected only. Elements of an array of another library may be
    inspected too, except of the first argument or with `blind`.
    """
    found = cache.key(args, options) if did.result is made else None
    first = args[0] if args else None
    sources = (
        None
        if found is None
        else _composed_sources(list(map(id, found[1])), did, first, unused, blind)
    )
    if found is None or sources is None or type(did.launch) is not native.Launch:
        cache.table.failed_inserts += 1
    else:
        kept: list[object] = [
            leaf for leaf, row in zip(did.leaves, sources, strict=False) if row.kind == "constant"
        ]
        _keep_key_objects((args, options), kept)
        _insert(cache, found[0], did.launch, sources, did.structure, kept)


def _composed_sources(
    seen: Sequence[int], did: RecordedCall, first: object, unused: bool, blind: bool
) -> list[ArgumentSource] | None:
    rows = []
    place = {address: k for k, address in enumerate(seen)}
    numbers = {id(number_as_array(x)) for x in did.arguments if type(x) in NUMBER_TYPES}
    for leaf in did.leaves:
        row = None
        if blind or type(leaf) is Array or leaf is first:
            row = _memory_source(leaf, place.get(id(leaf), 0))
        if row is None:
            return None
        if id(leaf) in place:
            rows.append(row)
        elif id(leaf) in numbers:
            # Numbers are static here, and so are the arrays made from them.
            rows.append(ArgumentSource("constant", 0, leaf.total_storage.address))
        else:
            return None
    missing = set(range(len(seen))) - {row.leaf for row in rows if row.kind != "constant"}
    # The elements of an array that is no argument may have influenced the call.
    spared = {0} if unused and seen and seen[0] == id(first) else set()
    if missing - spared:
        return None
    return [*rows, *(ArgumentSource(MEMORY_KINDS[type(first)], k) for k in missing)]


def _contains_dict(x: object) -> bool:
    if isinstance(x, dict):
        return True
    return isinstance(x, (list, tuple)) and any(map(_contains_dict, x))


def _keep_key_objects(x: object, kept: list[object]) -> None:
    """Append every object that may be part of a cache key, so that its address is not reused."""
    if isinstance(x, dict):
        kept.extend(x)
        x = [*x.values()]
    if isinstance(x, (list, tuple)):
        for each in x:
            _keep_key_objects(each, kept)
    elif type(x) is Array:
        kept.append(x.signature)
    elif type(x) is np.ndarray:
        kept.append(x.dtype)
    elif type(x) is bytes:
        pass  # Only the size is part of the cache key.
    elif type(x) is slice:
        _keep_key_objects([x.start, x.stop, x.step], kept)
    else:
        kept.append(x)


def _result_builder(structure: tree.PyTreeDef | None) -> Callable[[list[PyTree]], PyTree] | None:
    """Return the function that makes a pytree from a list of results, or `None` for one array."""
    if structure is None:
        return None
    flat = tree.unflatten(structure, range(structure.num_leaves))
    if type(flat) in (tuple, list) and list(flat) == list(range(structure.num_leaves)):
        return type(flat)
    # A native method of optree, which runs no Python code.
    made: Callable[[list[PyTree]], PyTree] = sort_keys(structure.spec).unflatten
    return made
