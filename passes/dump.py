"""Write the program after every pass into a folder, as text that can be read back.

`Dump` is a watch of the pipeline. It writes `00-traced.ir`, `01-propagate.ir`, ..., each headed by
a comment such as `// after propagate, 0.4 ms`. Names survive passes, so two of the files differ
only where the pass between them did something.
"""

import os
import re
from pathlib import Path
from typing import final

from shardir.ir import Module
from shardir.passes.pipeline import Pass
from shardir.text.printer import show

_DUMP = re.compile(r"\d\d+-[\w-]+\.ir")


@final
class Dump:
    """Numbered files in `folder`, which is made if need be.

    Dumps that an earlier program left there are removed. With `locations` every operation says
    where it came from and why.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        module: Module | None = None,
        *,
        locations: bool = False,
    ) -> None:
        """Begin with `module`, if it is known before the first pass."""
        self.folder = Path(folder)
        self.locations = locations
        self._count = 0
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(self.folder.iterdir()):
            if _DUMP.fullmatch(path.name):
                path.unlink()
        if module is not None:
            self._write("traced", "// as traced", module)

    def __call__(self, step: Pass, before: Module, after: Module, seconds: float) -> None:
        if not self._count:
            self._write("traced", "// as traced", before)
        self._write(step.name, f"// after {step}, {_duration(seconds)}", after)

    def _write(self, name: str, header: str, module: Module) -> None:
        path = self.folder / f"{self._count:02}-{name}.ir"
        path.write_text(f"{header}\n\n{show(module, locations=self.locations)}", "utf-8")
        self._count += 1


def program_folder(folder: str | os.PathLike[str], name: str) -> Path:
    """A folder of its own for a program: `folder/name`, or `folder/name.1`, ... if there is one."""
    plain = re.sub(r"[^\w.-]", "_", name) or "program"
    path, number = Path(folder) / plain, 0
    while path.exists():
        number += 1
        path = Path(folder) / f"{plain}.{number}"
    return path


def _duration(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"
