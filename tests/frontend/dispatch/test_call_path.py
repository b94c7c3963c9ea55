"""The files between a call of README's example and its first kernel, which `docs/map.md` lists.

The first call runs in a new process without the native tier. Whenever the call reaches a milestone
for the first time, the functions of the package on the stack are recorded: the code that leads
there. A reader follows these records from one milestone to the next. A *return* is a step to a file
that was read before, other than the current one.
"""

import json
import os
import re
import subprocess
import sys
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
MAX_FILES, MAX_RETURNS = 12, 10

RECORD_CALL_PATH = """
import json, os, re, sys

os.environ["SHARDIR_CPU_DEVICES"] = "8"
root = sys.argv[1] + os.sep
text = open(root + "README.md", encoding="utf-8").read()
blocks = re.findall(r"```python\\n(.*?)```", text, re.S)
example = next(block for block in blocks if "def mlp" in block)
example = example[: example.index("lowered")] if "lowered" in example else example
space = {}
exec(compile(example, "<example>", "exec"), space)
names = "x", "w1", "b1", "w2", "b2"
arrays = [space["sd"].device_put(space[name]) for name in names]
milestones = {
    "trace": ("<example>", "mlp"),
    "place": ("frontend/dispatch/programs/lowering.py", "lower"),
    "passes": ("passes/pipeline.py", "__call__"),
    "schedule": ("backends/cpu/schedule/build.py", None),
    "run": ("program", None),
}
paths = {}

def name_of(code):
    path = os.path.realpath(code.co_filename)
    is_own = path.startswith(root) and path.endswith(".py")
    return path[len(root):] if is_own else code.co_filename

def record(frame, event, argument):
    if event == "call":
        file, function = name_of(frame.f_code), frame.f_code.co_name
    elif event == "c_call":
        file, function = getattr(argument, "__name__", ""), None
    else:
        return
    for milestone, (expected, wanted) in milestones.items():
        if milestone in paths or file != expected or wanted not in (None, function):
            continue
        stack = []
        while frame is not None:
            file = name_of(frame.f_code)
            if file.endswith(".py") and not os.path.isabs(file):
                stack.append((file, id(frame)))
            frame = frame.f_back
        paths[milestone] = stack[::-1]

sys.setprofile(record)
space["mlp"](*arrays)
sys.setprofile(None)
print(json.dumps(paths))
"""


def record_call_path(cache: Path) -> list[list[tuple[str, int]]]:
    own = {"SHARDIR_NATIVE_DISPATCH": "0", "SHARDIR_CACHE_DIR": str(cache)}
    environment = {**os.environ, **own}
    done = subprocess.run(
        [sys.executable, "-c", RECORD_CALL_PATH, str(ROOT)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = json.loads(done.stdout.splitlines()[-1])
    assert list(paths) == ["trace", "place", "passes", "schedule", "run"]
    return [[(file, frame) for file, frame in path] for path in paths.values()]


def steps_of_reader(paths: list[list[tuple[str, int]]]) -> list[str]:
    """Return the files in the order in which a reader visits them."""
    steps: list[str] = []
    before: list[tuple[str, int]] = []
    for path in paths:
        common = 0
        while path[: common + 1] == before[: common + 1] and common < len(path):
            common += 1
        # The reader goes on in the function that calls both.
        steps += [file for file, _ in path[max(0, common - 1) :]]
        before = path
    return [file for file, _ in groupby(steps)]


def test_the_map_lists_the_files_between_a_call_and_its_first_kernel(tmp_path: Path) -> None:
    steps = steps_of_reader(record_call_path(tmp_path))
    files = list(dict.fromkeys(steps))
    returns = sum(file in steps[:k] for k, file in enumerate(steps))
    text = (ROOT / "docs/map.md").read_text(encoding="utf-8")
    section = text[text.index("**From `f(x)` to the first kernel.**") :]
    section = section[: section.index("\n## ")]
    stated = re.search(r"passes through (\d+) files and returns (\d+) times", section)
    assert stated is not None
    assert (len(files), returns) == tuple(map(int, stated.groups())), steps
    assert len(files) <= MAX_FILES
    assert returns <= MAX_RETURNS
    assert [file for file in files if f"`{file}`" not in section] == []
