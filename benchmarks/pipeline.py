"""Compare the time of steps of a pipeline with the time that its simulator predicts.

The pipeline has one stage of equal layers on each of two rows. In one process, its rows run one
after another, and each pass uses all cores; the prediction is the sum of the passes. In two
processes, each row uses one core, and the prediction is the simulated cost of the schedule. Times
of passes are those of other steps, which alternate with the measured ones. A step also divides the
batch, exchanges the results of the rows and returns the loss, which takes about 5 ms. Times are
medians.

    python benchmarks/pipeline.py
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import shardir as sd
import shardir.numpy as snp
from shardir.frontend.pipelines.recording import record_pipelines
from shardir.passes.pipeline_parallelism.named_schedules import make_schedule
from shardir.passes.pipeline_parallelism.simulation import PassTimes, simulate_schedule
from shardir.sharding import NamedSharding, PartitionSpec as P

STAGES, LAYERS, WIDTH, BATCH, MICROBATCHES = 2, 4, 512, 2048, 8
REPEATS = 11
SCHEDULES = ("gpipe", "1f1b", "zb-h1")
MPIEXEC = str(Path(sys.executable).parent / "mpiexec")

Passes = list[list[float]]
"""The seconds of the forward pass and of both gradients, for each stage."""


def loss(w: Any, x: Any, y: Any) -> Any:
    for stage in range(STAGES):
        with sd.stage(stage):
            for layer in range(LAYERS):
                x = snp.tanh(x @ w[stage, layer])
    with sd.stage(STAGES - 1):
        return snp.mean((x - y) ** 2)


def measure(schedule: str) -> list[tuple[float, Passes]]:
    """Return for each repetition the seconds of a step, and the passes of this process in another
    step."""
    sd.distributed.initialize()
    mesh = sd.make_mesh((STAGES,), ("pipe",))
    rng = np.random.default_rng(0)
    shape = (STAGES, LAYERS, WIDTH, WIDTH)
    weights = (rng.standard_normal(shape) / WIDTH**0.5).astype(np.float32)
    w = sd.device_put(weights, NamedSharding(mesh, P("pipe")))
    batch = rng.standard_normal((2, BATCH, WIDTH)).astype(np.float32)
    x, y = (sd.device_put(each, NamedSharding(mesh, P())) for each in batch)
    step = sd.jit(
        sd.value_and_grad(sd.pipeline(loss, microbatches=MICROBATCHES, schedule=schedule))
    )
    float(step(w, x, y)[0])
    found = []
    for _ in range(REPEATS):
        with record_pipelines() as record:
            float(step(w, x, y)[0])
        sd.distributed.barrier()
        start = time.perf_counter()
        float(step(w, x, y)[0])
        seconds = time.perf_counter() - start
        passes = [
            [float(each.forward), float(each.input_gradient), float(each.weight_gradient)]
            for each in record.pass_times()
        ]
        found.append((seconds, passes))
    return found


def run(schedule: str, processes: int) -> tuple[float, float]:
    """Return the predicted and the measured seconds of a step on a number of processes."""
    launcher = [MPIEXEC, "-n", str(processes)] if processes > 1 else []
    done = subprocess.run(
        [*launcher, sys.executable, __file__, schedule],
        env={**os.environ, "SHARDIR_CPU_DEVICES": str(STAGES)},
        check=True,
        capture_output=True,
        text=True,
    )
    made = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    predicted = []
    for repetition in zip(*made, strict=True):
        stages = [[0.0] * 3 for _ in range(STAGES)]
        for _, passes in repetition:
            for stage, times in enumerate(passes):
                stages[stage] = [max(pair) for pair in zip(stages[stage], times, strict=True)]
        times = [PassTimes(*each) for each in stages]
        rows = make_schedule(schedule, ranks=STAGES, microbatches=MICROBATCHES)
        cost = simulate_schedule(rows, times).cost
        in_turn = MICROBATCHES * sum(each.total for each in times)
        predicted.append(float(cost if processes > 1 else in_turn))
    measured = [max(seconds for seconds, _ in repetition) for repetition in zip(*made, strict=True)]
    return median(predicted), median(measured)


def main() -> None:
    table = Table("schedule", "processes", "predicted ms", "measured ms", "ratio")
    for processes in (1, STAGES):
        for schedule in SCHEDULES:
            predicted, measured = run(schedule, processes)
            milliseconds = (f"{1e3 * seconds:.1f}" for seconds in (predicted, measured))
            ratio = f"{measured / predicted:.2f}"
            table.add_row(schedule, str(processes), *milliseconds, ratio)
    Console(width=100).print(table)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.stdout.write(json.dumps(measure(sys.argv[1])) + "\n")
    else:
        main()
