"""The page of a public module: a table of its names, and an entry for each of them."""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from types import ModuleType
from typing import Any

from docs.generation.public_names import (
    assigned_documentation,
    documentation,
    public_modules,
    public_names,
    source_class,
    source_function,
)

NO_REFERENCE = (type(None), bool, int, float, str, tuple)
"""Types whose equal objects are not aliases of each other."""

MAX_NAMES_WITHOUT_TOPICS = 60
MIN_TOPIC_NAMES = 5

TOPIC_TITLES = {
    "": "Other",
    "collective_ops": "Collectives",
    "dtypes": "Element types and constants",
    "gather_scatter": "Gather and scatter",
    "ir": "Programs of the IR",
    "numpy": "Element types and constants",
    "polynomial_fitting": "Polynomials",
    "tracer_helpers": "Properties of arrays",
}
"""The titles of topics that are not the name of the folder or file."""


def module_page(module: str) -> str:
    """Return the Markdown page of a public module."""
    parts = [
        f"# {module}",
        f"```{{py:module}} {module}\n```",
        as_markdown(inspect.getdoc(import_module(module)) or ""),
    ]
    for topic, names in _topics(module).items():
        rows = [
            f"| {{py:obj}}`{name} <{module}.{name}>` | {_summary(module, name)} |" for name in names
        ]
        parts += [
            f"## {topic}" if topic else "",
            "\n".join(["| name | summary |", "| --- | --- |", *rows]),
            *(_entry(module, name) for name in names),
        ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _topics(module: str) -> dict[str, list[str]]:
    """Return the public names of a module by topic; a module with few names has one topic."""
    names = public_names(module)
    if len(names) <= MAX_NAMES_WITHOUT_TOPICS:
        return {"": names}
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(_topic(module, getattr(import_module(module), name)), []).append(name)
    others = found.pop(TOPIC_TITLES[""], [])
    for topic in [each for each in found if len(found[each]) < MIN_TOPIC_NAMES]:
        others += found.pop(topic)
    others.sort(key=str.casefold)
    return {topic: found[topic] for topic in sorted(found)} | ({"Other": others} if others else {})


def _topic(module: str, value: object) -> str:
    """Return the topic of a public name: the folder or file of the code below its namespace."""
    if isinstance(value, ModuleType):
        return "Modules"
    if isinstance(value, float | None):
        return TOPIC_TITLES["dtypes"]
    home = str(getattr(value, "__module__", ""))
    below = home.removeprefix("shardir.").removeprefix("frontend.")
    if module != "shardir":
        below = below.removeprefix(module.removeprefix("shardir.") + ".")
    word = below.partition(".")[0]
    return TOPIC_TITLES.get(word, word.replace("_", " ").capitalize())


def as_markdown(text: str) -> str:
    """Return a docstring as Markdown: text is literal outside of backticks, and lines of a Python
    session are a code block.
    """
    blocks = []
    for block in text.split("\n\n"):
        if block.lstrip().startswith(">>>"):
            blocks.append(f"```pycon\n{inspect.cleandoc(block)}\n```")
        elif block.startswith("    "):
            blocks.append(block)
        else:
            blocks.append(_escape(block))
    return "\n\n".join(blocks)


def _escape(text: str) -> str:
    """Escape the characters that Markdown gives a meaning, except in code and at list items."""
    pieces = re.split(r"(`+[^`]*`+)", text)
    for index in range(0, len(pieces), 2):
        pieces[index] = re.sub(r"(?<!^)(?<!\n)[*]|[<>\[\]$]|(?<=\w)_|^#", r"\\\g<0>", pieces[index])
    return "".join(pieces)


def module_summary(module: str) -> str:
    """Return the first sentence of the docstring of a module, as Markdown for a table."""
    return _cell(_first_sentence(inspect.getdoc(import_module(module)) or ""))


def _summary(module: str, name: str) -> str:
    """Return the first sentence of the documentation of a name, as Markdown for a table."""
    return _cell(_first_sentence(documentation(module, name) or ""))


def _first_sentence(text: str) -> str:
    text = " ".join(text.partition("\n\n")[0].split())
    return _escape(re.split(r"(?<=\.) (?=[A-Z`])", text)[0].rstrip(":"))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _entry(module: str, name: str) -> str:
    """Return the entry of one name."""
    value = getattr(import_module(module), name)
    text = as_markdown(documentation(module, name) or "")
    if isinstance(value, ModuleType):
        if value.__name__ in public_modules():
            return ""
        return _directive("py:data", name, [], text)
    place = _first_place(value)
    if place is not None and place != f"{module}.{name}":
        same = f"The same object as {{py:obj}}`{place}`."
        return _directive(_kind(value), _with_signature(name, value), [], f"{text}\n\n{same}")
    if isinstance(value, type):
        return _directive("py:class", _with_signature(name, value), _members(value), text)
    if _kind(value) == "py:function":
        return _directive("py:function", _with_signature(name, value), [], text)
    functions = _public_functions(value)
    if functions:
        text += "\n\nFunctions: " + ", ".join(f"`{each}`" for each in functions) + "."
    options = f":value: {value!r}\n\n" if isinstance(value, NO_REFERENCE) else ""
    return _directive("py:data", name, [], options + text)


def _public_functions(value: object) -> list[str]:
    """Return the names of the functions of an object that is a namespace."""
    stored = getattr(value, "__dict__", {})
    return [name for name, each in stored.items() if name[0] != "_" and callable(each)]


def _kind(value: object) -> str:
    if isinstance(value, type):
        return "py:class"
    return "py:function" if _is_function(value) else "py:data"


def _is_function(value: object) -> bool:
    return inspect.isroutine(value) or (callable(value) and hasattr(value, "__wrapped__"))


def _directive(kind: str, head: str, members: list[str], text: str) -> str:
    fence = ":::::" if members else ":::"
    inside = "\n\n".join([text, *members])
    return f"{fence}{{{kind}}} {head}\n{inside}\n{fence}"


@cache
def _places() -> dict[int, str]:
    """Return the first public name of each object, by identity."""
    found: dict[int, str] = {}
    for module in public_modules():
        for name in public_names(module):
            value = getattr(import_module(module), name)
            if not isinstance(value, NO_REFERENCE):
                found.setdefault(id(value), f"{module}.{name}")
    return found


def _first_place(value: object) -> str | None:
    return _places().get(id(value))


@cache
def class_names() -> dict[str, str]:
    """Return the first full public name of each public class, by its last part."""
    found: dict[str, str] = {}
    for module in public_modules():
        for name in public_names(module):
            if isinstance(getattr(import_module(module), name), type):
                found.setdefault(name, f"{module}.{name}")
    return found


def _with_signature(name: str, value: Any) -> str:
    if isinstance(value, type):
        return name + _class_signature(value)
    return name + _signature(value) if _is_function(value) else name


def _signature(function: Any, bound: bool = False) -> str:
    """Return the signature of a function as its source states it."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return "(...)"
    parameters = list(signature.parameters.values())[1 if bound else 0 :]
    node = source_function(function)
    if node is not None:
        arguments = node.args
        stated = [*arguments.posonlyargs, *arguments.args, arguments.vararg, *arguments.kwonlyargs,
                  arguments.kwarg]  # fmt: skip
        names = [each.arg for each in stated if each is not None][1 if bound else 0 :]
        if names == [each.name for each in parameters]:
            returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
            return _as_stated_to_users(f"({_unparse(arguments, bound)}){returns}")
    return _without_annotations(parameters)


def _as_stated_to_users(signature: str) -> str:
    """Return a signature with `Array` for tracers, which functions return inside of `jit`, and
    without the quotes of forward references.
    """
    signature = re.sub(r"\bTracer\b", "Array", signature)
    return re.sub(r"(-> |: )'(\w+)'", r"\1\2", signature)


def _unparse(arguments: ast.arguments, bound: bool) -> str:
    text = ast.unparse(arguments)
    if not bound:
        return text
    _, _, rest = text.partition(", ")
    return rest.removeprefix("/, ")


def _without_annotations(parameters: list[inspect.Parameter]) -> str:
    bare = [
        each.replace(
            annotation=inspect.Parameter.empty,
            default=each.default
            if isinstance(each.default, NO_REFERENCE) or each.default is inspect.Parameter.empty
            else ...,
        )
        for each in parameters
    ]
    return str(inspect.Signature(bare))


def _class_signature(cls: type) -> str:
    """Return the parameters of a class, or nothing if it has no constructor of its own."""
    for name in ("__init__", "__new__"):
        function = getattr(cls, name)
        if (node := source_function(function)) is not None:
            return _as_stated_to_users(f"({_unparse(node.args, bound=True)})")
    if "__dataclass_fields__" not in vars(cls):
        return ""
    try:
        return _without_annotations(list(inspect.signature(cls).parameters.values()))
    except (TypeError, ValueError):
        return ""


@dataclass(frozen=True)
class Member:
    """A public attribute of a class."""

    name: str
    value: Any
    owner: type

    @cached_property
    def text(self) -> str:
        """The documentation of the attribute; empty if there is none."""
        if inspect.isfunction(self.value) or isinstance(
            self.value, property | cached_property | classmethod | staticmethod
        ):
            return inspect.getdoc(self.value) or ""
        own = getattr(self.value, "__dict__", {}).get("__doc__")
        if isinstance(own, str):
            return inspect.cleandoc(own)
        node = source_class(self.owner)
        return assigned_documentation(node.body).get(self.name, "") if node else ""

    def directive(self) -> str:
        """Return the entry of the attribute."""
        text = re.sub(r"(`shardir\.numpy\.\w+`)", r"{py:obj}\1", as_markdown(self.text))
        if isinstance(self.value, classmethod | staticmethod):
            bound = isinstance(self.value, classmethod)
            head = self.name + _signature(self.value.__func__, bound)
            option = ":classmethod:" if bound else ":staticmethod:"
            return _directive("py:method", head, [], f"{option}\n\n{text}")
        if inspect.isfunction(self.value):
            return _directive("py:method", self.name + _signature(self.value, True), [], text)
        is_property = isinstance(self.value, property | cached_property)
        kind = "py:property" if is_property else "py:attribute"
        return _directive(kind, self.name, [], text)


def _members(cls: type) -> list[str]:
    return [member.directive() for member in class_members(cls)]


def class_members(cls: type) -> Iterator[Member]:
    """Yield the public attributes of a class and of those of its bases that shardir defines."""
    seen = set()
    for owner in cls.__mro__:
        if not owner.__module__.startswith("shardir."):
            continue
        annotated = getattr(owner, "__annotations__", {})
        for name in sorted({*vars(owner), *annotated}):
            if not name.startswith("_") and name not in seen:
                seen.add(name)
                yield Member(name, vars(owner).get(name), owner)
