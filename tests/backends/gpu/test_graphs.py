"""CUDA graphs are refused where there can be none, with the reason."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from shardir.backends.gpu.vendored.comm import CommError
from shardir.backends.gpu.vendored.graphs import captured
from shardir.backends.gpu.vendored.layout import Mesh
from shardir.backends.gpu.vendored.local import LocalComm
from shardir.backends.gpu.vendored.program import Program

PROGRAM = Program("p", {"data": 2}, (), ())
LOOP = Program("p", {"data": 2}, (), (), no_graph="while (%x) makes the host read")
GPU = torch.device("cuda", 0)


@pytest.mark.parametrize(
    ("comm", "program", "reason"),
    [
        (SimpleNamespace(device=torch.device("cpu")), PROGRAM, "it runs on cpu"),
        (SimpleNamespace(device=GPU), LOOP, "while (%x) makes the host read"),
        (
            LocalComm(Mesh({"data": 2}), 0, GPU, None),
            PROGRAM,
            "2 devices are threads of one process, which cannot capture together; start a process "
            "for each, with a GPU of its own",
        ),
        (
            SimpleNamespace(device=GPU, mesh=Mesh({}), staged=True),
            PROGRAM,
            "tensors go through the host; use NCCL",
        ),
    ],
    ids=["cpu", "loop", "threads", "gloo"],
)
def test_what_is_no_graph_is_refused(comm: Any, program: Program, reason: str) -> None:
    with pytest.raises(CommError) as caught:
        captured(lambda comm: (), comm, [], program)
    assert str(caught.value).startswith(f"--graph is not possible: {reason}")
