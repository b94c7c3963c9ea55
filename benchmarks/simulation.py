"""Predicted and measured times of training steps of GPT models.

`gpt_programs.py` and `zero3.py` contain the programs of the steps:

    python benchmarks/simulation.py
    python benchmarks/simulation.py ground_truth_multi.csv --recompute --pairs
    python benchmarks/simulation.py ground_truth_single.csv --machine a100x8-eager --pairs

`published_steps.csv` has the steps of Narayanan et al. (2021, arXiv:2104.04473, tables 1 and 2:
their TFLOP/s, with the paper's formula for the flops of a step; the microbatches of table 1 are
assumed, because it does not state them) and of Korthikanti et al. (2022, arXiv:2205.05198, table
5).

Steps with sequence parallelism run with the pass `overlap`: the backward pass sends while it
computes the gradients of weights, as the paper states in section 4.2.2, and as
apex/transformer/tensor_parallel/layers.py (NVIDIA/apex) does.

A step with a pipeline is the sum of two predictions: the schedule of the passes of all stages, and
the update of the weights of one stage, which begins with the sum of the gradients over `data`.
Megatron keeps each stage's weights on its own devices; `sd.pipeline` gives all gradients to all
devices, which the prediction omits.

`--pairs` prints how often two steps of one model that differ in the size of the microbatch, or in
the degree of tensor parallelism, are predicted in the measured order, and the regret: the measured
time of the step that is predicted to be fastest, divided by that of the fastest step.

`--fit` fits constants of the machine to the steps of a file, also to steps with a pipeline:

    python benchmarks/simulation.py benchmarks/calibration_steps.csv --recompute \\
        --fit matmul,memory,launch
"""

import argparse
import csv
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import combinations
from pathlib import Path

from gpt_programs import Measurement, lower_pipeline, lower_step, lower_update
from zero3 import lower_zero_step

from shardir.backends.emission import get_target
from shardir.frontend.pipelines.inspection import InspectedPipeline
from shardir.ir.module import Module
from shardir.machine import Machine, MachineDescription
from shardir.machine.description_files import read_description
from shardir.machine.placement import place_axes
from shardir.machine.step_fit import describe_fit, fit_steps
from shardir.machine.toml_text import format_toml
from shardir.passes import Pipeline
from shardir.passes.pipeline_parallelism.program import FragmentKey
from shardir.passes.simulation.simulate import FUSION_PIPELINE, simulate
from shardir.stages import Lowered

PAIRS = {
    "the size of the microbatch": ("micro",),
    "the degree of tensor parallelism": ("tensor", "data", "pipeline"),
}
"""The fields in which the steps of a pair differ."""


@dataclass(frozen=True)
class PreparedStep:
    """A step whose kernels are formed, so that it can be predicted for several machines."""

    whole: Module
    """The program of a step without a pipeline, or the update of the weights of one rank."""
    pipeline: InspectedPipeline | None = None
    passes: Mapping[FragmentKey, Module] = field(default_factory=dict)
    """The programs of the passes of a pipeline; stages that are equal have the same program."""

    @classmethod
    def of_pipeline(cls, step: Lowered, update: Lowered, form_kernels: str) -> "PreparedStep":
        """Return a step with a pipeline, with passes that follow the partitioning."""
        (pipeline,) = step.pipelines()
        fragments = {id(each): each.module for each in pipeline.fragments.values()}
        form = Pipeline.parse(form_kernels)
        formed = {key: form(module) for key, module in fragments.items()}
        passes = {key: formed[id(each)] for key, each in pipeline.fragments.items()}
        whole = Pipeline.parse(f"default,{form_kernels}")(update.module)
        return cls(whole, pipeline, passes)

    def predict(self, description: MachineDescription) -> float:
        """Return the predicted seconds of the step on a described machine."""
        seconds = predict_module(self.whole, description)
        if self.pipeline is None:
            return seconds
        modules = {id(each): each for each in self.passes.values()}
        durations = {key: predict_module(each, description) for key, each in modules.items()}
        times = self.pipeline.pass_times(
            {key: durations[id(each)] for key, each in self.passes.items()}
        )
        machine = place_machine(description, dict(self.pipeline.mesh.axes))
        return float(self.pipeline.simulate(machine, times=times).makespan) + seconds


def prepare(given: Measurement, target: str | None = None) -> PreparedStep:
    """Return the step of a row with the kernels of a target."""
    form_kernels = FUSION_PIPELINE if target is None else get_target(target).pipeline
    if given.sequence_parallelism:
        form_kernels = f"overlap,{form_kernels}"
    if given.pipeline > 1:
        return PreparedStep.of_pipeline(lower_pipeline(given), lower_update(given), form_kernels)
    lowered = lower_zero_step(given) if given.zero_stage else lower_step(given)
    return PreparedStep(Pipeline.parse(f"default,{form_kernels}")(lowered.module))


def place_machine(description: MachineDescription, axes: dict[str, int]) -> Machine:
    return Machine(description, axes, place_axes(description, axes, None))


def predict_module(kernels: Module, description: MachineDescription) -> float:
    axes = {name: size for mesh in kernels.meshes for name, size in mesh.axes}
    machine = place_machine(description, axes)
    return simulate(kernels, machine, fusion="").step_seconds


def fit_constants(
    steps: Sequence[Measurement], description: MachineDescription, constants: str
) -> None:
    """Print constants of a description that are fitted to steps."""
    prepared = [prepare(each) for each in steps]
    fit = fit_steps(
        description,
        constants.split(","),
        [each.milliseconds / 1e3 for each in steps],
        lambda changed, index: prepared[index].predict(changed),
    )
    print(format_toml(describe_fit(fit, description.name, len(steps))))
    print(
        f"mean error {fit.mean_error:.1%}, worst {fit.worst_error:.1%}, "
        f"cross-validated {fit.validated_error:.1%}"
    )


def count_ordered_pairs(
    steps: Sequence[Measurement], predicted: Sequence[float], varied: Sequence[str]
) -> tuple[int, int]:
    """Return how many pairs of steps of one model, batch and number of devices that differ in the
    first field of `varied`, and at most in the others, are predicted in the measured order, and how
    many there are."""
    others = [
        field.name for field in fields(Measurement) if field.name not in (*varied, "milliseconds")
    ]
    ordered = total = 0
    for (one, first), (other, second) in combinations(zip(steps, predicted, strict=True), 2):
        is_varied = getattr(one, varied[0]) != getattr(other, varied[0])
        if is_varied and all(getattr(one, name) == getattr(other, name) for name in others):
            total += 1
            ordered += (one.milliseconds < other.milliseconds) == (first < second)
    return ordered, total


def compute_regrets(steps: Sequence[Measurement], predicted: Sequence[float]) -> list[float]:
    """Return, for each model, batch and number of devices with several steps, the measured time of
    the step that is predicted to be fastest, divided by that of the fastest step."""
    groups: dict[tuple[int, ...], list[tuple[float, float]]] = {}
    for one, time in zip(steps, predicted, strict=True):
        key = one.gpus, one.batch, one.hidden, one.layers
        groups.setdefault(key, []).append((time, one.milliseconds))
    return [
        min(group)[1] / min(measured for _, measured in group)
        for group in groups.values()
        if len(group) > 1
    ]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    published = Path(__file__).with_name("published_steps.csv")
    options.add_argument("file", nargs="?", type=Path, default=published, help="measured steps")
    options.add_argument("--machine", default="a100x8-megatron")
    options.add_argument("--target", help="target whose passes form kernels")
    options.add_argument("--recompute", action="store_true", help="recompute all activations")
    options.add_argument("--every", type=int, default=1, help="use each n-th row")
    options.add_argument("--fit", help="fit constants of the machine, such as matmul,memory")
    options.add_argument("--pairs", action="store_true", help="compare the order of pairs")
    chosen = options.parse_args()
    rows = csv.DictReader(chosen.file.read_text("utf-8").splitlines())
    steps = list(map(Measurement.parse, rows))[:: chosen.every]
    if chosen.recompute:
        steps = [replace(one, recomputation="full") for one in steps]
    if not steps:
        raise SystemExit("simulation.py: no step remains; name a CSV file with the row of a step")
    description = read_description(chosen.machine)
    if chosen.fit:
        fit_constants(steps, description, chosen.fit)
        return
    predicted = []
    for one in steps:
        predicted.append(prepare(one, chosen.target).predict(description) * 1e3)
        print(
            f"B {one.batch:4} b {one.micro:2} h {one.hidden:5} l {one.layers:3} t {one.tensor:2} "
            f"d {one.data:2} p {one.pipeline:2} {one.recomputation:9}: "
            f"measured {one.milliseconds:8.1f} ms, predicted {predicted[-1]:8.1f} ms "
            f"({predicted[-1] / one.milliseconds - 1:+.0%})",
            flush=True,
        )
    errors = [abs(time / one.milliseconds - 1) for one, time in zip(steps, predicted, strict=True)]
    print(
        f"{len(errors)} steps: MAPE {statistics.mean(errors):.1%}, "
        f"median {statistics.median(errors):.1%}, largest {max(errors):.1%}"
    )
    if chosen.pairs:
        for what, varied in PAIRS.items():
            ordered, total = count_ordered_pairs(steps, predicted, varied)
            print(f"pairs that differ in {what}: {ordered} of {total} in the measured order")
        regrets = compute_regrets(steps, predicted)
        print(
            f"{len(regrets)} choices of the fastest step: mean regret "
            f"{statistics.mean(regrets):.3f}, largest {max(regrets):.3f}"
        )


if __name__ == "__main__":
    main()
