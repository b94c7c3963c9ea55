"""Run programs on GPUs in this process: the backend imports the emitted program and calls it.

The devices of a mesh are threads, each with its own stream on its GPU (as with `--local` of an
emitted program). Several devices may share a GPU: device `id` uses GPU `id % device_count`. Torch
is imported when a GPU is first used.
"""

import atexit
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from itertools import count
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from types import ModuleType
from typing import TYPE_CHECKING, Any, final

from shardir.backends.base import Array, Shards
from shardir.backends.device_shards import DeviceBackend, DeviceExecutable, DeviceShards
from shardir.backends.emission import Emission
from shardir.backends.gpu.runtime_files import RUNTIME_FOLDER
from shardir.backends.gpu.target import TARGET
from shardir.backends.key_words import view_as_elements, view_as_words
from shardir.errors import ShardirError
from shardir.ir.dtypes import dtype_name
from shardir.ir.mesh import Mesh
from shardir.ir.module import Module, spmd_mesh_of
from shardir.ir.types import TensorType

if TYPE_CHECKING:
    import torch

    from shardir.backends.gpu.vendored.comm import Comm

Main = Callable[..., "tuple[torch.Tensor, ...]"]

_HOME = "shardir.backends.gpu.vendored"


class NoGPUError(ShardirError, RuntimeError):
    """Raised where no GPU, or no torch that supports one, is available."""


@final
class GPUBackend(DeviceBackend):
    """Runs emitted programs in this process on torch devices of kind `kind`."""

    name = "gpu"
    pipeline = TARGET.pipeline

    def __init__(self, kind: str = "cuda") -> None:
        self.kind = kind
        self._folder: Path | None = None
        self._program_numbers = count()

    def device_count(self) -> int:
        """Return the number of GPUs; raise `NoGPUError` if there is none."""
        torch = self._torch()
        return int(torch.cuda.device_count()) if self.kind == "cuda" else 1

    def device_kind(self, id: int) -> str:
        """Return the product name of a GPU."""
        torch = self._torch()
        if self.kind != "cuda":
            return self.kind
        return str(torch.cuda.get_device_name(id % self.device_count()))

    def compile_for(
        self, module: Module, ids: Sequence[int], results: Sequence[TensorType] | None = None
    ) -> "GPUProgram":
        """Emit the program as for a machine without shardir, and import it."""
        torch = self._torch()
        if self._folder is None:
            self._folder = Path(mkdtemp(prefix="shardir-gpu-"))
            atexit.register(rmtree, self._folder, ignore_errors=True)
        name = f"shardir_gpu_program_{next(self._program_numbers)}"
        # The program is written to files because Triton reads the source of its kernels.
        main = _import_main(
            name, _write_files(TARGET.emit(Emission.of(module), {}), self._folder / name)
        )
        mesh = None if module.main.spmd is None else spmd_mesh_of(module)
        count = self.device_count()
        places = [
            torch.device(self.kind, id % count) if self.kind == "cuda" else torch.device(self.kind)
            for id in ids
        ]
        types = results or [value.type for value in module.main.body.returns]
        return GPUProgram(main, mesh, places, types)

    def _torch(self) -> ModuleType:
        """Return the module torch; raise `NoGPUError` if it is missing or finds no GPU."""
        try:
            import torch
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise NoGPUError(
                "devices of kind 'gpu' are driven by torch, which is not installed; "
                "pip install 'shardir[gpu]'"
            ) from None
        if self.kind == "cuda" and not torch.cuda.is_available():
            built = "" if torch.version.cuda else ", which is built for CPUs alone,"
            raise NoGPUError(
                f"torch {torch.__version__}{built} finds no GPU; run on devices of kind 'cpu', or "
                "emit the program for another machine (shardir emit --target gpu)"
            )
        module: ModuleType = torch
        return module


BACKEND = GPUBackend()


@final
class GPUProgram(DeviceExecutable):
    """An imported program, with the device of torch for each position of its mesh."""

    def __init__(
        self,
        main: Main,
        mesh: Mesh | None,
        places: "Sequence[torch.device]",
        results: Sequence[TensorType],
    ) -> None:
        # The package of the module imports torch, an optional dependency.
        from shardir.backends.gpu.vendored.device_mesh import Mesh as Devices

        self._main = main
        self._mesh = Devices(dict(mesh.axes) if mesh is not None else {})
        self._places = list(places)
        self._results = list(results)

    def to_device(self, shards: Shards) -> DeviceShards:
        # The module imports torch, an optional dependency.
        from shardir.backends.gpu.vendored.arrays import to_torch

        if isinstance(shards, GPUShards) and shards.places == self._places:
            return shards
        made: dict[tuple[int, str], torch.Tensor] = {}
        tensors = []
        for array, place in zip(shards, self._places, strict=True):
            # Devices on one GPU share equal arrays: no program writes into its arguments.
            key = id(array), str(place)
            if key not in made:
                words = view_as_words(array)
                made[key] = to_torch(words, dtype_name(words.dtype)).to(place)
            tensors.append(made[key])
        return GPUShards(tensors, self._places, list(shards))

    def run(self, args: Sequence[DeviceShards]) -> list[DeviceShards]:
        # The module imports torch, an optional dependency.
        from shardir.backends.gpu.vendored.threads import run_threads

        tensors = [shards.tensors for shards in args if isinstance(shards, GPUShards)]

        def work(comm: "Comm") -> "tuple[torch.Tensor, ...]":
            return self._main(comm, *[each[comm.rank] for each in tensors])

        with use_full_precision():
            made = run_threads(self._mesh, self._places, work)
        return [
            GPUShards([results[i] for results in made], self._places, None, type)
            for i, type in enumerate(self._results)
        ]


@final
class GPUShards(DeviceShards):
    """Tensors on GPUs, one per device of a mesh; `host` holds the same values as NumPy arrays."""

    def __init__(
        self,
        tensors: "Sequence[torch.Tensor]",
        places: "Sequence[torch.device]",
        host: list[Array] | None,
        type: TensorType | None = None,
    ) -> None:
        self.tensors, self.places, self._host, self._type = tensors, places, host, type

    def wait(self) -> None:
        import torch

        for place in dict.fromkeys(self.places):
            if place.type == "cuda":
                torch.cuda.synchronize(place)

    def __len__(self) -> int:
        return len(self.tensors)

    def __getitem__(self, index: Any) -> Any:
        if self._host is None:
            # The module imports torch, an optional dependency.
            from shardir.backends.gpu.vendored.arrays import to_numpy

            assert self._type is not None
            # Each distinct tensor is converted once, so that devices share replicated arrays.
            dtype = self._type.numpy
            made = {id(each): view_as_elements(to_numpy(each), dtype) for each in self.tensors}
            self._host = [made[id(each)] for each in self.tensors]
        return self._host[index]


def _write_files(files: Mapping[str, str | bytes], folder: Path) -> Path:
    """Write the program's files without its runtime, which shardir has; return the main file's
    path.
    """
    found = []
    for name, content in files.items():
        path = folder / name
        if name.startswith(f"{RUNTIME_FOLDER}/"):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content.replace(RUNTIME_FOLDER, _HOME), encoding="utf-8")
            found.append(path)
    (text,) = found
    return text


def _import_main(name: str, path: Path) -> Main:
    """Import the program's file and return its function `main`."""
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    with use_full_precision():
        spec.loader.exec_module(module)
    main: Main = module.main
    return main


@contextmanager
def use_full_precision() -> Iterator[None]:
    """Within the context, multiply in full precision; restore torch's settings afterwards."""
    import torch

    matmul = torch.backends.cuda.matmul
    settings = [
        (matmul, "fp32_precision", "ieee"),
        (torch.backends.cudnn.conv, "fp32_precision", "ieee"),
        (matmul, "allow_bf16_reduced_precision_reduction", False),
        (matmul, "allow_fp16_reduced_precision_reduction", False),
    ]
    before = [getattr(place, name) for place, name, _ in settings]
    changed = [(*each, old) for each, old in zip(settings, before, strict=True) if each[2] != old]
    for place, name, value, _ in changed:
        setattr(place, name, value)
    try:
        yield
    finally:
        for place, name, _, old in changed:
            setattr(place, name, old)
