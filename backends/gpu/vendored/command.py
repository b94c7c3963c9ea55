"""The command line of a program: start or join the processes, and run the program."""

import argparse
import os
import re
import sys
import traceback
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import torch
import torch.distributed as dist

from shardir.backends.gpu.vendored.arrays import DataError
from shardir.backends.gpu.vendored.comm import CommError
from shardir.backends.gpu.vendored.distributed import DistComm
from shardir.backends.gpu.vendored.launchers import LaunchedProcess, read_launch
from shardir.backends.gpu.vendored.program_description import Program
from shardir.backends.gpu.vendored.threads import run_threads
from shardir.backends.gpu.vendored.worker import Main, RunOptions, Worker


def run(main: Main, program: Program, words: Sequence[str] | None = None) -> None:
    """Execute the command line, and end the process with status 1 after an error."""
    options = _parser(program).parse_args(words)
    launch: LaunchedProcess | None = None
    try:
        launch = None if options.local is not None else read_launch(os.environ)
        report = _run(main, program, options, launch)
    except (CommError, DataError) as error:
        _end_with_error(launch, f"error: {error}")
    except Exception:
        traceback.print_exc()
        _end_with_error(launch, f"error: {program.title} failed")
    if launch is None or launch.rank == 0:
        print("\n".join(report))
    if launch is not None and dist.is_initialized():
        dist.destroy_process_group()


def _end_with_error(launch: LaunchedProcess | None, message: str) -> NoReturn:
    """Print an error and end immediately, so that other processes do not wait for this one."""
    who = f"process {launch.rank} of {launch.size}: " if launch is not None else ""
    print(f"{who}{message}", file=sys.stderr, flush=True)
    sys.stdout.flush()
    if launch is not None:
        os._exit(1)
    raise SystemExit(1)


def _parser(program: Program) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=describe_program(program), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--selftest", action="store_true", help="compare with results that the compiler computed")
    add(
        "--bench",
        type=int,
        nargs="?",
        const=20,
        default=0,
        metavar="RUNS",
        help="measure the time of this number of runs (default: 20)",
    )
    add("--graph", action="store_true", help="record a CUDA graph, and replay it")
    add(
        "--arguments",
        type=Path,
        metavar="DIR",
        help="folder with NAME.npy for each argument (default: selftest/arguments)",
    )
    add("--results", type=Path, metavar="DIR", help="folder that receives NAME.npy for each result")
    add("--shards", action="store_true", help="the files contain shards: NAME.RANK.npy")
    size = program.devices.size
    add(
        "--local",
        type=int,
        nargs="?",
        const=size,
        metavar="N",
        help=f"run all {size} devices as threads of this process, ignoring launchers",
    )
    add("--device", choices=("cuda", "cpu"), help="device (default: cuda if torch finds a GPU)")
    add("--backend", choices=("nccl", "gloo"), help="library (default: nccl on GPUs, gloo on CPUs)")
    add(
        "--timeout",
        type=float,
        default=300.0,
        metavar="S",
        help="time-out of exchanges in seconds (default: 300)",
    )
    return parser


def describe_program(program: Program) -> str:
    """Return a description of the program, its arguments and its results."""
    axes = ", ".join(f"{name}={size}" for name, size in program.mesh.items())
    lines = [f"{program.title} on the mesh [{axes}]", "", "arguments:"]
    lines += [f"  {tensor}" for tensor in program.passed_arguments]
    lines += ["", "results:", *(f"  {tensor}" for tensor in program.results)]
    return "\n".join(lines)


def _run(
    main: Main, program: Program, options: argparse.Namespace, launch: LaunchedProcess | None
) -> list[str]:
    run_options = RunOptions(
        selftest=options.selftest,
        bench=options.bench,
        graph=options.graph,
        arguments=options.arguments,
        results=options.results,
        shards=options.shards,
    )
    if not (run_options.selftest or run_options.bench or run_options.results):
        return [
            describe_program(program),
            "",
            "nothing to do: pass --selftest, --bench, or --results DIR",
        ]
    # Products of 16-bit floats are accumulated in f32, also in split-K partial sums.
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    kind = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if kind == "cuda" and not torch.cuda.is_available():
        raise CommError("torch finds no GPU; run on the CPU with --device cpu")
    mesh = program.devices
    if launch is None:
        if options.local not in (None, mesh.size):
            raise CommError(
                f"--local {options.local} differs from the {mesh.size} devices of the program's "
                f"mesh {program.mesh}"
            )
        count = torch.cuda.device_count() if kind == "cuda" else 1
        places = [f"cuda:{rank % count}" if kind == "cuda" else "cpu" for rank in range(mesh.size)]
        report: list[list[str]] = run_threads(
            mesh,
            places,
            lambda comm: Worker(main, program, comm, run_options).work(),
            options.timeout,
        )
        return report[0]
    if launch.size != mesh.size:
        raise CommError(
            f"the program is for the {mesh.size} devices of the mesh {program.mesh}, and "
            f"{launch.by} started {launch.size} processes; start {mesh.size}"
        )
    comm = connect_processes(launch, program, kind, options.backend, options.timeout)
    return Worker(main, program, comm, run_options).work()


def choose_gpu(launch: LaunchedProcess, count: int, backend: str) -> int:
    """Return the index of a process's GPU; raise `CommError` if NCCL cannot share it."""
    shares = os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") == "1"
    # A launcher that assigns one GPU per process makes only that one visible.
    given = count == 1 and bool(re.fullmatch(r"[^,]+", os.environ.get("CUDA_VISIBLE_DEVICES", "")))
    if launch.local_rank >= count and backend == "nccl" and not (shares or given):
        raise CommError(
            f"process {launch.local_rank} of this host has no GPU of its own: there are {count}; "
            "start one process per GPU, or pass --local or --backend gloo (NCCL 2.30 and "
            "later share a GPU between processes if NCCL_MULTI_RANK_GPU_ENABLE=1 is set)"
        )
    return launch.local_rank % count


def connect_processes(
    launch: LaunchedProcess, program: Program, kind: str, backend: str | None, timeout: float
) -> DistComm:
    """Connect all processes; each of them is a device of the mesh."""
    backend = backend or ("nccl" if kind == "cuda" else "gloo")
    if kind == "cpu" and backend == "nccl":
        raise CommError("NCCL is for GPUs; on the CPU pass --backend gloo")
    device = torch.device("cpu")
    if kind == "cuda":
        device = torch.device("cuda", choose_gpu(launch, torch.cuda.device_count(), backend))
        torch.cuda.set_device(device)
    bound: dict[str, torch.device] = {"device_id": device} if backend == "nccl" else {}
    try:
        dist.init_process_group(
            backend,
            init_method=f"tcp://{launch.host}:{launch.port}",
            rank=launch.rank,
            world_size=launch.size,
            timeout=timedelta(seconds=timeout),
            **bound,
        )
    except (RuntimeError, ValueError) as error:
        if "Duplicate GPU" in str(error):
            raise CommError(
                f"process {launch.rank} shares its GPU with another, which NCCL does not "
                "support; start one process per GPU, or pass --local or --backend gloo"
            ) from None
        raise CommError(
            f"process {launch.rank} cannot connect to process 0 at {launch.host}:{launch.port}; "
            f"set MASTER_ADDR to its host, and MASTER_PORT to a free port there: {error}"
        ) from None
    comm = DistComm(program.devices, launch.rank, device, program.groups)
    # Libraries connect at the first collective, in which all processes must take part.
    comm.all_reduce(torch.zeros(1, device=device), "add", tuple(program.mesh))
    return comm
