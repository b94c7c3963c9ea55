"""The parameters of a function that is to be traced: names, static and donated parameters."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import Parameter, signature
from typing import Self

import numpy as np

from shardir.errors import ShardirError, count_noun
from shardir.frontend.argument_checks import as_items
from shardir.frontend.errors import ArgumentError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief, brief_with_type
from shardir.frontend.source_locations import with_location

ArgNums = int | Sequence[int]
ArgNames = str | Sequence[str]
Dynamic = tuple[tuple[PyTree, ...], dict[str, PyTree]]


@dataclass(frozen=True)
class Parameters:
    """The parameters of a function; `names` are the positional ones, `variadic` is the name after
    `*`.

    Static and donated parameters are listed by position and by name, because a call may use either.
    As in JAX, each list determines the other one, unless the user states both. A negative position
    of a function with `*args` counts from the last argument of a call; see `for_call`.
    """

    name: str
    names: tuple[str, ...]
    variadic: str
    static: frozenset[int]
    static_names: frozenset[str]
    donated_numbers: frozenset[int]
    donated_names: frozenset[str]

    @classmethod
    def of(
        cls,
        fun: UserFunction,
        static_argnums: ArgNums | None = None,
        static_argnames: ArgNames | None = None,
        donate_argnums: ArgNums | None = None,
        donate_argnames: ArgNames | None = None,
        *,
        word: str = "static",
    ) -> Self:
        """Return the parameters of `fun`; raises `ArgumentError` for parameters that do not exist.

        `word` is the prefix of the user's option for static arguments: `static_argnums`,
        `nondiff_argnums`.
        """
        if not callable(fun):
            raise ArgumentError(with_location(f"a function is required, got {fun!r}"))
        name = function_name(fun)
        try:
            known = list(signature(fun).parameters.values())
        except (TypeError, ValueError):
            known = [Parameter("args", Parameter.VAR_POSITIONAL)]
        positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        names = tuple(p.name for p in known if p.kind in positional)
        variadic = next((p.name for p in known if p.kind is Parameter.VAR_POSITIONAL), "")
        kinds = {p.kind for p in known}
        unnamed = (Parameter.POSITIONAL_ONLY, Parameter.VAR_POSITIONAL)
        nameless = tuple(p.name for p in known if p.kind in unnamed)
        keywords = None if Parameter.VAR_KEYWORD in kinds else tuple(p.name for p in known)

        def resolve(
            word: str, numbers: object, argnames: object
        ) -> tuple[frozenset[int], frozenset[str]]:
            at = _resolve_argnums(name, f"{word}_argnums", numbers, names, variadic)
            called = _resolve_argnames(name, f"{word}_argnames", argnames, keywords, nameless)
            if argnames is None:
                called = frozenset(names[i] for i in at if 0 <= i < len(names))
            elif numbers is None:
                at = frozenset(names.index(n) for n in called if n in names)
            return at, called

        static, static_names = resolve(word, static_argnums, static_argnames)
        donated, donated_names = resolve("donate", donate_argnums, donate_argnames)
        _check_distinct(name, static, donated)
        return cls(name, names, variadic, static, static_names, donated, donated_names)

    @cached_property
    def counts_from_end(self) -> bool:
        """True if positions depend on the number of positional arguments of a call."""
        return min((*self.static, *self.donated_numbers), default=0) < 0

    def for_call(self, count: int) -> "Parameters":
        """Return the parameters with the positions in a call with `count` positional arguments.

        Raises `ArgumentError` if a static position does not exist.
        """
        if not self.counts_from_end:
            return self
        static = positions_in_call(self.name, self.static, count)
        numbers = (i + count if i < 0 else i for i in self.donated_numbers)
        donated = frozenset(i for i in numbers if i >= 0)
        _check_distinct(self.name, static, donated)
        return replace(self, static=static, donated_numbers=donated)

    @property
    def has_static(self) -> bool:
        return bool(self.static or self.static_names)

    def partition_arguments(
        self, args: tuple[PyTree, ...], options: dict[str, PyTree]
    ) -> tuple[Dynamic, PyTree]:
        """Return the dynamic arguments and the cache key of the static ones.

        Raises `ArgumentError` for a static argument that cannot be hashed.
        """
        if not self.has_static:
            return (args, options), ()
        static: list[tuple[int | str, object]] = []
        dynamic: list[object] = []
        for i, arg in enumerate(args):
            if i in self.static:
                static.append((i, self._static_key(i, arg)))
            else:
                dynamic.append(arg)
        named = {}
        for name in sorted(options):
            if name in self.static_names:
                static.append((name, self._static_key(name, options[name])))
            else:
                named[name] = options[name]
        return (tuple(dynamic), named), tuple(static)

    def _static_key(self, which: int | str, value: object) -> object:
        kind = type(value)
        if kind is int or kind is bool:  # The most common types, on the path of each call.
            return kind, value
        try:
            hash(value)  # A list may change later and must not be part of a cache key.
            return static_key(value)
        except Exception as error:  # A `__hash__` may raise any exception.
            label = self.label(which) if isinstance(which, int) else which
            raise ArgumentError(
                with_location(
                    f"static argument {label} of {self.name} is "
                    f"{brief_with_type(value)}, which cannot be hashed; pass a tuple or another "
                    "hashable value, or do not make it static"
                )
            ) from (None if isinstance(error, TypeError) else error)

    def merge_arguments(
        self, dynamic: Dynamic, args: tuple[PyTree, ...], options: dict[str, PyTree]
    ) -> tuple[list[PyTree], dict[str, PyTree]]:
        """Return all arguments in order: the dynamic ones from `dynamic`, the static ones
        unchanged.
        """
        filled = iter(dynamic[0])
        joined = [arg if i in self.static else next(filled) for i, arg in enumerate(args)]
        return joined, sort_names({**options, **dynamic[1]})

    def labels(self, args: tuple[PyTree, ...], options: dict[str, PyTree]) -> list[str]:
        """Return a name for each leaf of the dynamic arguments: `x`, `params.0.w`."""
        numbers = iter(i for i in range(len(args) + len(self.static)) if i not in self.static)
        labels = []
        for number, arg in zip(numbers, args, strict=False):
            labels.extend(leaf_labels(self.label(number), arg))
        for name in sorted(options):
            labels.extend(leaf_labels(name, options[name]))
        return labels

    def label(self, number: int) -> str:
        """Return the name of the argument at a position."""
        if number < len(self.names):
            return self.names[number]
        return f"{self.variadic or 'args'}.{number - len(self.names)}"

    def donated_leaves(
        self, structure: tree.PyTreeDef, args: tuple[PyTree, ...], options: dict[str, PyTree]
    ) -> list[int]:
        """Return the donated leaves of the dynamic arguments of a call, which have `structure`."""
        numbers = tree.unflatten(structure, range(structure.num_leaves))
        filled, named = self.merge_arguments(numbers, args, options)
        given = [filled[i] for i in sorted(self.donated_numbers) if i < len(filled)]
        return tree.leaves(given + [named[x] for x in sorted(named) if x in self.donated_names])


def sort_names(options: dict[str, PyTree]) -> dict[str, PyTree]:
    """Return keyword arguments in the order in which a traced function receives them, as in JAX."""
    return {name: options[name] for name in sorted(options)}


def positions_in_call(fun: str, numbers: frozenset[int], count: int) -> frozenset[int]:
    """Return the positions in a call of `fun` with `count` positional arguments.

    Raises `ArgumentError` for a negative number without an argument.
    """
    for number in sorted(numbers):
        if number < -count:
            arguments = count_noun(count, "positional argument")
            raise ArgumentError(
                with_location(
                    f"argument {number} of {fun} is listed by number, and the call has "
                    f"{arguments}; negative numbers count from the last one"
                )
            )
    return frozenset(i + count if i < 0 else i for i in numbers)


def _check_distinct(fun: str, static: frozenset[int], donated: frozenset[int]) -> None:
    if both := sorted(static & donated):
        raise ArgumentError(
            with_location(f"argument {both[0]} of {fun} is both static and donated; choose one")
        )


def leaf_labels(base: str, arg: object) -> list[str]:
    """Return a name for each leaf of `arg`, made of `base` and its path."""
    return [".".join(map(str, (base, *path))) for path in tree.structure(arg).paths()]


def function_name(fun: UserFunction) -> str:
    """Return the name of a function in programs and errors."""
    while not hasattr(fun, "__name__") and hasattr(fun, "func"):
        fun = fun.func
    name = getattr(fun, "__name__", None)
    if not isinstance(name, str):
        name = type(fun).__name__
    return "lambda" if name == "<lambda>" else name


def _resolve_argnums(
    fun: str, word: str, numbers: object, names: Sequence[str], variadic: str
) -> frozenset[int]:
    if numbers is None:
        return frozenset()
    listed = as_items(numbers)
    result = set()
    for number in listed:
        if not isinstance(number, int) or isinstance(number, bool):
            raise ArgumentError(
                with_location(f"{word} of {fun} has {brief(number)}, which is not a number")
            )
        at = number + len(names) if number < 0 else number
        if number < 0 and variadic:
            result.add(number)
            continue
        if at < 0 or (at >= len(names) and not variadic):
            takes = f"{len(names)} ({', '.join(names)})" if names else "none"
            raise ArgumentError(
                with_location(
                    f"{word} of {fun} has {number}, but its positional parameters are {takes}"
                )
            )
        result.add(at)
    return frozenset(result)


def _resolve_argnames(
    fun: str, word: str, argnames: object, known: Sequence[str] | None, nameless: Sequence[str]
) -> frozenset[str]:
    if argnames is None:
        return frozenset()
    listed = tuple(argnames) if isinstance(argnames, (list, tuple, set, frozenset)) else (argnames,)
    for name in listed:
        if not isinstance(name, str):
            raise ArgumentError(
                with_location(f"{word} of {fun} has {brief(name)}, which is not a name")
            )
        if name in nameless:
            raise ArgumentError(
                with_location(f"{word} of {fun} has {name!r}, which is given by position only")
            )
        if known is not None and name not in known:
            raise ArgumentError(
                with_location(
                    f"{word} of {fun} has {name!r}, but its parameters are {', '.join(known)}"
                )
            )
    return frozenset(listed)


class UnhashableError(ShardirError, TypeError):
    """A static argument cannot be hashed."""


def static_key(value: PyTree) -> Hashable:
    """Return the cache key of a static argument; raises `UnhashableError` when it cannot be hashed.

    The key distinguishes values that Python compares equal: 1, 1.0 and True are different
    arguments.
    """
    kind = type(value)
    if value is None or kind is str or kind is type:
        key: Hashable = value
        return key
    if kind is tuple or kind is list:
        return (kind, *map(static_key, value))
    if kind is slice:
        return (slice, static_key(value.start), static_key(value.stop), static_key(value.step))
    if kind is dict:
        return (dict, *((key, static_key(each)) for key, each in value.items()))
    if isinstance(value, float) and (value == 0 or value != value):
        return kind, float.__repr__(value)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return kind, value.shape, value.dtype, value.tobytes()
    try:
        hash(value)
    except Exception as error:  # That of a writable memoryview is a ValueError.
        raise UnhashableError(f"{value!r} cannot be hashed") from error
    return kind, value


def static_value(key: PyTree) -> PyTree:
    """Return the static argument with this cache key."""
    if type(key) is not tuple:
        return key
    kind, *parts = key
    if kind is tuple or kind is list or kind is slice:
        values = map(static_value, parts)
        return slice(*values) if kind is slice else kind(values)
    if kind is dict:
        return {name: static_value(each) for name, each in parts}
    if issubclass(kind, np.ndarray):
        shape, dtype, data = parts
        return np.frombuffer(data, dtype).reshape(shape)
    (value,) = parts
    return float(value) if issubclass(kind, float) and type(value) is str else value
