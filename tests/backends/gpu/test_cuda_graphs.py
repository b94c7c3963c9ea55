"""CUDA graphs: programs that cannot be captured are rejected with the reason; replays."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from shardir.backends.gpu.vendored.comm import CommError
from shardir.backends.gpu.vendored.cuda_graphs import capture_graph
from shardir.backends.gpu.vendored.device_mesh import Mesh
from shardir.backends.gpu.vendored.program_description import Program, Tensor
from shardir.backends.gpu.vendored.threads import LocalComm
from tests.backends.gpu.fake_cuda import replace_torch_cuda

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
def test_programs_that_cannot_be_captured_are_rejected(
    comm: Any, program: Program, reason: str
) -> None:
    with pytest.raises(CommError) as caught:
        capture_graph(lambda comm: (), comm, [], program)
    assert str(caught.value).startswith(f"--graph is not possible: {reason}")


def test_a_replay_copies_changed_and_donated_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_torch_cuda(monkeypatch)
    captured: list[Any] = []
    arguments = (Tensor("x", "f32", (2,)), Tensor("w", "f32", (2,), donated=True))

    def main(comm: Any, x: Any, w: Any) -> tuple[Any, ...]:
        captured[:] = [x, w]
        return (x,)

    comm: Any = LocalComm(Mesh({}), 0, GPU, None)
    x, w = torch.zeros(2), torch.ones(2)
    replay = capture_graph(main, comm, [x, w], Program("p", {}, arguments, ()))
    own_x, own_w = captured
    assert own_x is not x
    assert own_w is not w

    x += 3
    (result,) = replay(comm, x, w)
    assert result is own_x
    assert own_x.tolist() == [3, 3]
    own_x.zero_()
    own_w.zero_()
    replay(comm, x, w)
    # x is unchanged, so the replay did not copy it again. w is donated: the program may overwrite
    # it, so the replay copies it each time.
    assert own_x.tolist() == [0, 0]
    assert own_w.tolist() == [1, 1]
    x += 1
    replay(comm, x, w)
    assert own_x.tolist() == [4, 4]
