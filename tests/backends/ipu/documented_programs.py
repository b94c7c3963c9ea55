"""The emitted programs in `docs/emitted`.

`python -m tests.backends.ipu.documented_programs` writes them.
"""

from pathlib import Path

import shardir as sd
from shardir.backends.ipu.target import program_text
from tests.backends.ipu.model_steps import (
    PERCEPTRON,
    PERCEPTRON_SPECS,
    mesh_of,
    normal_array,
    perceptron_step,
    put_on_mesh,
    sharded_params,
)
from tests.backends.ipu.test_pmap_tutorial import rule_30

FOLDER = Path(__file__).parents[3] / "docs" / "emitted"


def documented_texts() -> dict[Path, str]:
    """Return the texts of the documented programs by path."""
    mesh = mesh_of(2, 2)
    params = sharded_params(mesh, PERCEPTRON, PERCEPTRON_SPECS["tp"])
    args = (
        params,
        put_on_mesh(mesh, normal_array(16, 8), "data"),
        put_on_mesh(mesh, normal_array(16, 4), "data"),
    )
    step = sd.jit(perceptron_step, donate_argnums=0).lower(*args)
    return {
        FOLDER / "ipu_perceptron" / "perceptron_step.cpp": program_text(step.emission("ipu"), {}),
        FOLDER / "ipu_rule_30" / "step.cpp": program_text(rule_30().emission("ipu"), {}),
    }


if __name__ == "__main__":
    for path, text in documented_texts().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
