"""Machine code that takes calls: made in haste, and replaced."""

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
hasty = tiered_code.launch_code()
method = entry_point._method_definition
print(tiered_code.has_call_cache(), method(hasty["launch"]).code == hasty["launch"])
for _ in range(tiered_code.TIER2_CALL_COUNT):
    sd.jit(lambda x: x + 1)(ones[0])
for thread in threading.enumerate():
    if thread.name == "shardir-prepare":
        thread.join()
print(tiered_code.has_call_cache())
good = tiered_code.call_cache_code()
print(all(method(hasty[name]).code == good[name] for name in ("launch", "gather", "hand")))
print(hasty is good, [float(x[0]) for x in plus(ones)], [float(x[0]) for x in few[2]])
"""


def test_what_was_made_in_haste_is_replaced(tmp_path: Path) -> None:
    told = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "SHARDIR_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.returncode, done.stderr) == (0, "")
        told.append(done.stdout.splitlines())
    assert told[0] == ["False True", "True", "True", "False [2.0, 2.0] [2.0, 2.0]"]
    assert told[1] == ["True True", "True", "True", "True [2.0, 2.0] [2.0, 2.0]"]
