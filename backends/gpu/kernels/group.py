"""A group while its kernel is written: names, tensors, and the text of functions and launches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from shardir.backends.gpu.kernels.helpers import LIBDEVICE, functions, helpers_of
from shardir.backends.gpu.kernels.kernel import IMPORTS, Kernel, Launch
from shardir.backends.gpu.kernels.layout import Layout, layout_of
from shardir.backends.gpu.kernels.names import fresh, identifier, identifiers, words_of
from shardir.backends.gpu.kernels.sides import Counting, Side
from shardir.backends.gpu.kernels.terms import POINTERS, TORCH
from shardir.backends.gpu.kernels.writer import Writer
from shardir.ir import Block, Op, Value
from shardir.text.printer import Printer
from shardir.types import NUMPY_DTYPES

WIDTH = 100
RESERVED = ("tl", "triton", "torch", "libdevice", "device", "float", "range")
LETTERS = "ijklmnpqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Group:
    """A `fused` operation, its axes, and what things are called."""

    op: Op
    block: Block
    name: str
    layout: Layout
    words: Mapping[Value, str]
    """Names as the IR writes them."""
    names: Mapping[Value, str]
    """Names as Python writes them."""
    results: tuple[str, ...]

    @property
    def params(self) -> tuple[Value, ...]:
        """The parameters that results are made of."""
        return tuple(value for value in self.block.params if value in self.layout.lies)

    @property
    def is_large(self) -> bool:
        """Whether 32 bits cannot tell its elements apart."""
        tensors = (*self.block.params, *self.block.returns)
        walked = prod(self.layout.extents)
        return max([walked, *(value.type.size for value in tensors)]) >= 1 << 30

    @property
    def itemsize(self) -> int:
        """Bytes of its widest elements in memory."""
        tensors = (*self.params, *self.block.returns)
        return max(NUMPY_DTYPES[value.type.dtype].itemsize for value in tensors)

    def own(self, word: str) -> str:
        """A variable of the kernel's own: the word, if no value is called so."""
        return fresh(word, (*self.names.values(), *self.results), "_")

    def side(
        self, word: str, axes: Sequence[int], size: int, length: int, block: str, slot: str = ""
    ) -> Side:
        """A side whose numbers are called so, if no value is."""
        mask = self.own("mask" if word == "at" else f"{word}_mask") if size % length else ""
        return Side(self.own(word), tuple(axes), size, length, block, slot, mask)

    def writer(self, *sides: Side) -> Writer:
        letters = [self.own(letter) for letter in LETTERS]
        counting = Counting(self.layout, letters)
        counter = "i64" if self.is_large else "i32"
        return Writer(self.block, self.layout, self.names, sides, counting, counter)

    def program(self, axis: int) -> str:
        """The number of a program along an axis of the grid."""
        return f"tl.program_id({axis}){'.to(tl.int64)' if self.is_large else ''}"

    def pointers(self, values: Sequence[Value]) -> dict[str, str]:
        """Parameters of a kernel for values that are loaded, by name."""
        return {f"{self.names[value]}_ptr": POINTERS[value.type.dtype] for value in values}

    def stores(self) -> list[tuple[Value, str, str]]:
        """What is yielded, the parameter that points to where, and how that is typed."""
        return [
            (value, f"{name}_ptr", POINTERS[value.type.dtype])
            for value, name in zip(self.block.returns, self.results, strict=True)
        ]

    def function(self, launch: Launch, docstring: str, lines: Sequence[str]) -> str:
        """The text of a kernel."""
        params = [*launch.pointers, *(f"{name}: tl.constexpr" for name in launch.constants)]
        head = f"def {launch.function}({', '.join(params)}):"
        if len(head) > WIDTH:
            head = "\n    ".join((f"def {launch.function}(", *(f"{p}," for p in params))) + "\n):"
        body = "\n".join(f"    {line}" for line in lines)
        return f"@triton.jit\n{head}\n{docstring}\n{body}\n"

    def docstring(self) -> str:
        """What the group computes, as the IR says it."""
        printer = Printer(())
        lines = [self.op.why, ""] if self.op.why else []
        names = {value: f"%{word}" for value, word in self.words.items()}
        lines += [str(printer.op(op, names)) for op in self.block.ops]
        lines.append(f"yield {', '.join(names[value] for value in self.block.returns)}")
        raw = "r" if any("\\" in line for line in lines) else ""
        first, *rest = (*lines, '"""')
        return "\n".join((f'    {raw}"""{first}', *(f"    {line}".rstrip() for line in rest)))

    def allocation(self, name: str, shape: Sequence[int], dtype: str) -> str:
        """The line of the launch that makes a tensor."""
        operands = [self.names[value] for value in self.block.params]
        device = f"{operands[0]}.device" if operands else "device"
        sizes = f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"
        return f"{name} = torch.empty({sizes}, dtype={TORCH[dtype]}, device={device})"

    def call(self, launch: Launch) -> str:
        """The line of the launch that calls a kernel."""
        grid = f"({', '.join(map(str, launch.grid))}{',' * (len(launch.grid) == 1)})"
        args = [name.removesuffix("_ptr") for name in launch.pointers]
        args += [f"{name}={value}" for name, value in launch.constants.items()]
        args.append(f"num_warps={launch.num_warps}")
        args += [f"{name}={value}" for name, value in launch.options.items()]
        head = f"{launch.function}[{grid}]("
        line = f"{head}{', '.join(args)})"
        return (
            line if len(line) <= WIDTH - 4 else "\n    ".join((head, f"{', '.join(args)}")) + "\n)"
        )

    def kernel(
        self, texts: Sequence[str], launches: Sequence[Launch], scratch: Sequence[str] = ()
    ) -> Kernel:
        """Everything about the group."""
        text = "\n\n".join(texts)
        helpers = helpers_of(text)
        code = text + "".join(functions()[name] for name in helpers)
        imports: tuple[str, ...] = IMPORTS
        if "libdevice." in code:
            imports = (*IMPORTS, LIBDEVICE)
            options = {"enable_fp_fusion": False, "enable_reflect_ftz": False}
            launches = [replace(launch, options=options) for launch in launches]
        results = zip(self.block.returns, self.results, strict=True)
        lines = [self.allocation(name, v.type.shape, v.type.dtype) for v, name in results]
        lines += [*scratch, *map(self.call, launches)]
        operands = tuple(self.names[value] for value in self.block.params)
        return Kernel(
            text, "\n".join(lines), operands, self.results, tuple(launches), helpers, imports
        )


def group_of(op: Op, name: str) -> Group:
    """What there is to know of a group, before its kernel is chosen."""
    (block,) = op.blocks
    words = words_of(op)
    own = (f"{name}_kernel", f"{name}_parts")
    names = identifiers(words, (*RESERVED, *functions(), *own, name))
    results: list[str] = []
    taken = {*RESERVED, *functions(), *own, *names.values()}
    for inner, result in zip(block.returns, op.results, strict=True):
        word = names[inner]
        if inner in block.params or word in results:
            word = fresh(identifier(result.name), taken, "_")
        taken.add(word)
        results.append(word)
    return Group(op, block, name, layout_of(block), words, names, tuple(results))
