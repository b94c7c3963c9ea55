"""The programs that docs/emitted shows are what is emitted; `--update-stories` writes them anew."""

from pathlib import Path

import pytest

import shardir as sd
from shardir.backends.gpu.target import TARGET
from tests.backends.gpu.programs import PROGRAMS

FOLDER = Path(__file__).parents[3] / "docs" / "emitted"
SHOWN = {
    "gpu_mlp": "mlp_dp_tp",
    "gpu_transformer": "transformer_dp_tp",
    "gpu_pmap": "pmap_means",
    "gpu_control_flow": "conditionals",
}


@pytest.mark.parametrize("name", SHOWN)
def test_what_the_documents_show_is_emitted(name: str, request: pytest.FixtureRequest) -> None:
    with sd.cpu_devices(4):
        files = TARGET.emit(PROGRAMS[SHOWN[name]]().emission("gpu"), {})
    (file, text), *_ = ((path, text) for path, text in files.items() if "/" not in path)
    assert isinstance(text, str)
    place = FOLDER / name / file
    if request.config.getoption("--update-stories"):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    assert text == place.read_text(encoding="utf-8")
    assert max(map(len, text.splitlines())) <= 100
