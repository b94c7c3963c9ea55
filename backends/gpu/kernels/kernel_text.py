"""Texts of kernels as functions, and of their launches."""

from collections.abc import Sequence
from dataclasses import replace

from shardir.backends.gpu.dtypes import TORCH_DTYPES
from shardir.backends.gpu.kernels.helpers import LIBDEVICE, find_helpers, helper_functions
from shardir.backends.gpu.kernels.kernel import KERNEL_IMPORTS, KernelLaunch, KernelText

MAX_LINE_CHARACTERS = 100


def function_text(launch: KernelLaunch, docstring: Sequence[str], lines: Sequence[str]) -> str:
    """Return the function of a kernel with the parameters of its launch."""
    params = [*launch.pointers, *(f"{name}: tl.constexpr" for name in launch.constants)]
    head = f"def {launch.function}({', '.join(params)}):"
    if len(head) > MAX_LINE_CHARACTERS:
        head = "\n    ".join((f"def {launch.function}(", *(f"{p}," for p in params))) + "\n):"
    raw = "r" if any("\\" in line for line in docstring) else ""
    # A value may have any name, also one that would end the docstring.
    first, *rest = (line.replace('"""', "...") for line in docstring)
    quoted = [f'{raw}"""{first}', *rest]
    quoted = [*quoted, '"""'] if rest else [f'{quoted[0]}"""']
    body = "\n".join(f"    {line}".rstrip() for line in (*quoted, *lines))
    return f"@triton.jit\n{head}\n{body}\n"


def allocation_text(name: str, shape: Sequence[int], dtype: str, device: str) -> str:
    """Return the line that allocates a tensor."""
    return f"{name} = torch.empty({_tuple(shape)}, dtype={TORCH_DTYPES[dtype]}, device={device})"


def call_text(launch: KernelLaunch) -> str:
    """Return the call of a kernel, in three lines if it is long."""
    args = [name.removesuffix("_ptr") for name in launch.pointers]
    args += [f"{name}={value}" for name, value in launch.constants.items()]
    args.append(f"num_warps={launch.num_warps}")
    args += [f"{name}={value}" for name, value in launch.options.items()]
    head, rest = f"{launch.function}[{_tuple(launch.grid)}](", ", ".join(args)
    short = len(head) + len(rest) < MAX_LINE_CHARACTERS - 4
    return f"{head}{rest})" if short else f"{head}\n    {rest}\n)"


def _tuple(numbers: Sequence[int]) -> str:
    return f"({', '.join(map(str, numbers))}{',' * (len(numbers) == 1)})"


def make_kernel(
    texts: Sequence[str],
    launches: Sequence[KernelLaunch],
    allocations: Sequence[str],
    operands: Sequence[str],
    results: Sequence[str],
) -> KernelText:
    """Return the `Kernel` of kernels that are launched in sequence."""
    text = "\n\n".join(texts)
    calls = [_calls_libdevice(text) for text in texts]
    launches = [
        replace(launch, options={**launch.options, "enable_reflect_ftz": False})
        if calls_it
        else launch
        for launch, calls_it in zip(launches, calls, strict=True)
    ]
    imports: tuple[str, ...] = (*KERNEL_IMPORTS, LIBDEVICE) if any(calls) else KERNEL_IMPORTS
    lines = "\n".join([*allocations, *map(call_text, launches)])
    return KernelText(
        text, lines, tuple(operands), tuple(results), tuple(launches), find_helpers(text), imports
    )


def _calls_libdevice(text: str) -> bool:
    """Return whether a kernel or one of its helpers calls libdevice."""
    return any(
        "libdevice." in code
        for code in (text, *(helper_functions()[name] for name in find_helpers(text)))
    )
