"""Run a program on one device: read arguments, run, compare, measure, write results."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from shardir.backends.gpu.vendored.arrays import (
    MAX_RELATIVE_ERROR,
    DataError,
    join_shards,
    read_array,
    read_shard,
    write_array,
)
from shardir.backends.gpu.vendored.comm import Comm
from shardir.backends.gpu.vendored.cuda_graphs import capture_graph
from shardir.backends.gpu.vendored.program_description import Program, Tensor
from shardir.backends.gpu.vendored.reduction import view_as_words

Main = Callable[..., tuple[torch.Tensor, ...]]


@dataclass(frozen=True)
class RunOptions:
    """The requested actions; see the command line."""

    selftest: bool = False
    bench: int = 0
    graph: bool = False
    arguments: Path | None = None
    results: Path | None = None
    shards: bool = False


class Worker:
    """A program on one device of its mesh."""

    def __init__(self, main: Main, program: Program, comm: Comm, options: RunOptions) -> None:
        self.main, self.program, self.comm, self.options = main, program, comm, options
        self.folder = Path(program.file).parent
        self.all_axes = tuple(program.mesh)

    def work(self) -> list[str]:
        """Perform all requested actions, and return the lines of a report."""
        options, lines = self.options, []
        passed = options.arguments
        if passed is None:
            passed = self.folder / "selftest" / "arguments"
            if self.program.passed_arguments and not passed.exists():
                raise DataError(
                    f"{passed} does not exist, and no --arguments were given; emit the program "
                    "with selftest, or name a folder of .npy files"
                )
        arguments = self.read(passed)
        run = self.main
        if options.graph:
            run = capture_graph(self.main, self.comm, arguments, self.program)
        if options.bench:
            lines += self.bench(run, arguments)
        made = run(self.comm, *self.copy_donated(arguments))
        if options.selftest:
            lines += self.compare(made)
        if options.results is not None:
            lines += self.write(made, options.results)
        return lines

    def read(self, folder: Path) -> list[torch.Tensor]:
        """Return this device's shards of the arguments."""
        return [
            self.read_one(folder, tensor).to(self.comm.device) for tensor in self.program.arguments
        ]

    def read_one(self, folder: Path, tensor: Tensor) -> torch.Tensor:
        mesh, rank = self.program.devices, self.comm.rank
        if tensor.value:
            return read_shard(self.folder / tensor.value, tensor, mesh, rank)
        if self.options.shards and self.options.arguments is not None:
            return read_array(self.shard(folder, tensor), tensor, tensor.shard_shape(mesh))
        return read_shard(folder / f"{tensor.name}.npy", tensor, mesh, rank)

    def shard(self, folder: Path, tensor: Tensor) -> Path:
        """Return the path of this device's shard."""
        return folder / f"{tensor.name}.{self.comm.rank}.npy"

    def copy_donated(self, arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return arguments for one run: donated ones, which the run may overwrite, are copied."""
        stated = zip(arguments, self.program.arguments, strict=True)
        return [array.clone() if tensor.donated else array for array, tensor in stated]

    def compare(self, made: Sequence[torch.Tensor]) -> list[str]:
        """Compare results with the reference; raise `DataError` if they differ."""
        folder = self.folder / "selftest" / "results"
        worst = []
        for tensor, part in zip(self.program.results, made, strict=True):
            if tensor.unreduced:
                part = self.comm.all_reduce(part, tensor.reduction, tensor.unreduced)
            whole = read_shard(
                folder / f"{tensor.name}.npy", tensor, self.program.devices, self.comm.rank
            )
            place = tensor.window(self.program.devices, self.comm.rank)
            inside = tuple(slice(s.stop - s.start) for s in place)
            worst.append(
                relative_error(part.cpu()[inside] if inside else part.cpu(), whole[inside])
            )
        errors = self.max_over_devices(worst)
        lines, wrong = [], []
        for tensor, error in zip(self.program.results, errors, strict=True):
            allowed = MAX_RELATIVE_ERROR.get(tensor.dtype, 0.0)
            fits = error <= allowed
            line = f"{tensor}: differs by {error:.3g}, allowed are {allowed:.3g}"
            lines.append(f"{'ok   ' if fits else 'WRONG'} {line}")
            if not fits:
                wrong.append(line)
        if wrong:
            raise DataError("\n".join(["the self-test failed:", *lines]))
        return lines

    def max_over_devices(self, numbers: Sequence[float]) -> list[float]:
        """Return the maximum of each number over all devices."""
        own = torch.tensor(numbers, dtype=torch.float64, device=self.comm.device)
        if self.comm.mesh.size > 1:
            own = self.comm.all_reduce(own, "max", self.all_axes)
        found: list[float] = own.tolist()
        return found

    def bench(self, run: Main, arguments: Sequence[torch.Tensor]) -> list[str]:
        """Measure the duration of runs, each as the maximum over all devices."""
        for _ in range(3):
            run(self.comm, *self.copy_donated(arguments))
        times = []
        for _ in range(self.options.bench):
            given = self.copy_donated(arguments)
            self.synchronize()
            started = time.perf_counter()
            run(self.comm, *given)
            if self.comm.device.type == "cuda":
                torch.cuda.synchronize(self.comm.device)
            times.append(time.perf_counter() - started)
        times = sorted(self.max_over_devices(times))
        middle = times[len(times) // 2]
        return [
            f"{len(times)} runs on {self.program.devices.size} devices: "
            f"median {1e3 * middle:.3f} ms, fastest {1e3 * times[0]:.3f} ms"
        ]

    def synchronize(self) -> None:
        """Synchronize all devices before a measurement."""
        self.max_over_devices([0.0])
        if self.comm.device.type == "cuda":
            torch.cuda.synchronize(self.comm.device)

    def write(self, made: Sequence[torch.Tensor], folder: Path) -> list[str]:
        """Write results: one shard per device, or global arrays by the first device."""
        for tensor, part in zip(self.program.results, made, strict=True):
            if self.options.shards:
                write_array(self.shard(folder, tensor), part)
                continue
            parts = [part]
            if self.comm.mesh.size > 1:
                stacked = self.comm.all_gather(part.unsqueeze(0), 0, self.all_axes)
                parts = list(stacked.unbind(0))
            if self.comm.rank == 0:
                write_array(
                    folder / f"{tensor.name}.npy", join_shards(parts, tensor, self.program.devices)
                )
        return [f"results are in {folder}"]


def relative_error(got: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest difference relative to the largest reference element; for integers 0 or
    inf.
    """
    if got.dtype != expected.dtype or got.shape != expected.shape:
        return float("inf")
    if not got.dtype.is_floating_point and not got.dtype.is_complex:
        return 0.0 if torch.equal(view_as_words(got), view_as_words(expected)) else float("inf")
    wide = torch.complex128 if got.dtype.is_complex else torch.float64
    a, b = got.to(wide), expected.to(wide)
    plain = torch.isfinite(a) & torch.isfinite(b)
    same = (a == b) | (torch.isnan(a) & torch.isnan(b)) | plain
    if not same.all():
        return float("inf")
    a, b = a[plain], b[plain]
    if not a.numel():
        return 0.0
    scale = b.abs().max().item()
    return float((a - b).abs().max().item() / scale) if scale else float((a - b).abs().max().item())
