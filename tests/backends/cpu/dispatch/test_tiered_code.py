"""Tiered compilation of the dispatch code: -O0 first, then replaced by -O2."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import threading
import numpy as np
import shardir as sd
from shardir.backends.cpu.dispatch import tiered_code, entry_point
plus = sd.jit(lambda tree: [x + 1 for x in tree])
ones = [sd.device_put(np.ones(3, np.float32)) for _ in range(2)]
few = [plus(ones) for _ in range(3)]
tier1 = tiered_code.launch_code()
method = entry_point._method_definition
print(tiered_code.has_call_cache(), method(tier1["launch"]).code == tier1["launch"])
for _ in range(tiered_code.TIER2_CALL_COUNT):
    sd.jit(lambda x: x + 1)(ones[0])
for thread in threading.enumerate():
    if thread.name == "shardir-prepare":
        thread.join()
print(tiered_code.has_call_cache())
tier2 = tiered_code.call_cache_code()
print(all(method(tier1[name]).code == tier2[name] for name in ("launch", "gather", "hand")))
print(tier1 is tier2, [float(x[0]) for x in plus(ones)], [float(x[0]) for x in few[2]])
"""


def test_tier_1_code_is_replaced_by_tier_2_code(tmp_path: Path) -> None:
    outputs = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "SHARDIR_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.returncode, done.stderr) == (0, "")
        outputs.append(done.stdout.splitlines())
    assert outputs[0] == ["False True", "True", "True", "False [2.0, 2.0] [2.0, 2.0]"]
    assert outputs[1] == ["True True", "True", "True", "True [2.0, 2.0] [2.0, 2.0]"]
