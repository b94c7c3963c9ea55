"""A job of several processes that runs one step of a model in a pipeline.

Arguments: the model, the schedule, and the file that each process writes loss and gradients to.
With one more argument, the process with that number is killed in its fourth fragment.
"""

import os
import signal
import sys
from pathlib import Path

import numpy as np

import shardir as sd
from shardir.frontend.pipelines import fragments
from tests.frontend.pipelines.models import MODELS, place_arguments


def kill_after(calls: int) -> None:
    """Kill this process when it runs a fragment after this number of others."""
    run = fragments.CompiledFragment.__call__
    count = [0]

    def counted(*args: object) -> object:
        count[0] += 1
        if count[0] > calls:
            os.kill(os.getpid(), signal.SIGKILL)
        return run(*args)  # type: ignore[arg-type]

    fragments.CompiledFragment.__call__ = counted  # type: ignore[method-assign, assignment]


def main(model: str, schedule: str, path: str, killed: str = "") -> None:
    sd.distributed.initialize()
    mesh = sd.make_mesh((4, 2), ("pipe", "data"))
    loss, _ = MODELS[model]
    arguments = place_arguments(model, mesh, 4)
    if killed == str(sd.process_index()):
        kill_after(3)
    step = sd.value_and_grad(sd.pipeline(loss, microbatches=8, schedule=schedule))
    made = sd.jit(step)(*arguments)
    arrays = [np.asarray(sd.distributed.gather_to_all(leaf)) for leaf in sd.tree.leaves(made)]
    np.savez(Path(f"{path}.{sd.process_index()}.npz"), *arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
