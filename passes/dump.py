"""Dump the program after each pass into a folder, as text that can be parsed again.

`Dump` observes a pipeline. It writes `00-traced.ir`, `01-propagate.ir`, ..., each with a header
such as `// after propagate, 0.4 ms`. Passes preserve names, so two consecutive files differ only
where the pass between them changed the program.
"""

import os
import re
from pathlib import Path
from typing import final

from shardir.caller_warnings import warn_caller
from shardir.errors import ShardirError, os_error_reason
from shardir.ir.module import Module
from shardir.passes.pipeline import Pass, PassObserver
from shardir.text.printer import print_module

_DUMP = re.compile(r"\d\d+-[\w-]+\.ir")


class DumpError(ShardirError, OSError):
    """A folder or a file that cannot be written."""


class DumpWarning(UserWarning):
    """A program that runs, but could not be dumped."""


@final
class Dump:
    """Numbered files in `folder`, which is created if necessary.

    Dumps of an earlier program in the folder are removed. With `locations`, each operation states
    its source line and its `why`.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        module: Module | None = None,
        *,
        locations: bool = False,
    ) -> None:
        """Write `module` first if it is known before the first pass."""
        self.folder = Path(folder)
        self.locations = locations
        self._count = 0
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for path in sorted(self.folder.iterdir()):
                if _DUMP.fullmatch(path.name):
                    path.unlink()
        except OSError as error:
            raise _dump_error(self.folder, error) from None
        if module is not None:
            self._write("traced", "// as traced", module)

    def __call__(self, step: Pass, before: Module, after: Module, seconds: float) -> None:
        if not self._count:
            self._write("traced", "// as traced", before)
        self._write(step.name, f"// after {step}, {_format_duration(seconds)}", after)

    def _write(self, name: str, header: str, module: Module) -> None:
        path = self.folder / f"{self._count:02}-{name}.ir"
        text = f"{header}\n\n{print_module(module, locations=self.locations)}"
        try:
            path.write_text(text, "utf-8", errors="backslashreplace")
        except OSError as error:
            raise _dump_error(path, error) from None
        self._count += 1


def warning_dump(folder: str | os.PathLike[str], name: str) -> PassObserver:
    """Return an observer that dumps the program called `name` into a new folder inside of `folder`.

    A write error never ends the program: it causes one `DumpWarning`, and no further files.
    """
    dump: Dump | None = None
    failed = False

    def write(step: Pass, before: Module, after: Module, seconds: float) -> None:
        nonlocal dump, failed
        if failed:
            return
        try:
            if dump is None:
                dump = Dump(program_folder(folder, name))
            dump(step, before, after, seconds)
        except DumpError as error:
            failed = True
            warn_caller(f"{error}; the program continues without the dump", DumpWarning)

    return write


def program_folder(folder: str | os.PathLike[str], name: str) -> Path:
    """Make a new folder for a program, and return it: `folder/name`, or `folder/name.1`, ... if
    that exists.

    Threads and processes that dump programs of one name at the same time get different folders.
    Raises `DumpError` if it cannot be made.
    """
    plain = re.sub(r"[^\w.-]", "_", name) or "program"
    path, number = Path(folder) / plain, 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            try:
                path.mkdir()
                return path
            except FileExistsError:
                number += 1
                path = path.with_name(f"{plain}.{number}")
    except OSError as error:
        raise _dump_error(path, error) from None


def _dump_error(path: Path, error: OSError) -> DumpError:
    return DumpError(f"cannot write the program into {str(path)!r}: {os_error_reason(error)}")


def _format_duration(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"
