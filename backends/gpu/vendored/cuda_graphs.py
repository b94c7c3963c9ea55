"""CUDA graphs: capture a program's work on a GPU once, and replay it with one call."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from shardir.backends.gpu.vendored.comm import Comm, CommError
from shardir.backends.gpu.vendored.program_description import Program
from shardir.backends.gpu.vendored.threads import LocalComm

Main = Callable[..., tuple[Tensor, ...]]


def capture_graph(main: Main, comm: Comm, arguments: Sequence[Tensor], program: Program) -> Main:
    """Return `main` as a graph; raise `CommError` if it cannot be captured.

    The graph reads arguments from its own memory, which every call fills, and its results are valid
    until the next call. All processes capture and replay together.
    """
    reason = _why_no_graph(comm, program)
    if reason:
        raise CommError(f"--graph is not possible: {reason}")
    static = [argument.clone() for argument in arguments]
    written = [tensor.donated for tensor in program.arguments]
    side = torch.cuda.Stream(comm.device)
    side.wait_stream(torch.cuda.current_stream(comm.device))
    with torch.cuda.stream(side):
        for _ in range(3):
            main(comm, *[x.clone() if w else x for x, w in zip(static, written, strict=True)])
    torch.cuda.current_stream(comm.device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    try:
        # "thread_local": NCCL's watchdog thread may make calls that cannot be captured.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            results = main(comm, *static)
    except RuntimeError as error:
        raise CommError(f"--graph is not possible: {error}") from None
    filled: list[tuple[Tensor, int] | None] = [None] * len(static)

    def replay(_: Comm, *given: Tensor) -> tuple[Tensor, ...]:
        for i, (own, x) in enumerate(zip(static, given, strict=True)):
            # An unchanged tensor need not be copied again.
            state = x, x._version
            if written[i] or not _is_same(filled[i], state):
                own.copy_(x)
                filled[i] = state
        graph.replay()
        return tuple(results)

    return replay


def _is_same(old: tuple[Tensor, int] | None, new: tuple[Tensor, int]) -> bool:
    return old is not None and old[0] is new[0] and old[1] == new[1]


def _why_no_graph(comm: Comm, program: Program) -> str:
    """Return the reason why the program cannot be captured, or ""."""
    if comm.device.type != "cuda":
        return f"it runs on {comm.device.type}, and graphs are for CUDA"
    if program.no_graph:
        return program.no_graph
    if isinstance(comm, LocalComm) and comm.mesh.size > 1:
        return (
            f"{comm.mesh.size} devices are threads of one process, which cannot capture together; "
            "start a process for each, with a GPU of its own"
        )
    if getattr(comm, "staged", False):
        return "tensors go through the host; use NCCL"
    return ""
