"""The programs in docs/emitted equal the emitted programs; `--update-stories` rewrites them."""

from pathlib import Path

import pytest

import shardir as sd
from shardir.backends.gpu.target import TARGET
from tests.backends.gpu.programs import PROGRAMS

FOLDER = Path(__file__).parents[3] / "docs" / "emitted"
DOCUMENTED_PROGRAMS = {
    "gpu_mlp": "mlp_dp_tp",
    "gpu_transformer": "transformer_dp_tp",
    "gpu_pmap": "pmap_means",
    "gpu_control_flow": "conditionals",
}


@pytest.mark.parametrize("name", DOCUMENTED_PROGRAMS)
def test_documented_programs_equal_the_emitted_programs(
    name: str, request: pytest.FixtureRequest
) -> None:
    with sd.cpu_devices(4):
        files = TARGET.emit(PROGRAMS[DOCUMENTED_PROGRAMS[name]]().emission("gpu"), {})
    (file, text), *_ = ((path, text) for path, text in files.items() if "/" not in path)
    assert isinstance(text, str)
    path_of_text = FOLDER / name / file
    if request.config.getoption("--update-stories"):
        path_of_text.parent.mkdir(parents=True, exist_ok=True)
        path_of_text.write_text(text, encoding="utf-8")
    assert text == path_of_text.read_text(encoding="utf-8")
    assert max(map(len, text.splitlines())) <= 100
