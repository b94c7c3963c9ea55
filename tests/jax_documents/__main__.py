"""The command: run the documents in a folder, and print the outcome of each cell.

    python -m tests.jax_documents FOLDER [--only TITLE] [--full] [--devices N]
                                  [--replace OLD=NEW ...] [--verbose]

Sizes are those of `document_text.KNOWN` unless `--full` is given. The exit status is 0 if every
cell runs.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from dataclasses import replace
from pathlib import Path

from tests.jax_documents.document_runner import Outcome, run_document
from tests.jax_documents.document_text import KNOWN, Choices, documents_in


def main(arguments: list[str]) -> int:
    """Run the command with `arguments`, and return its exit status."""
    options = _options(arguments)
    bad = 0
    for document in documents_in(options.folder):
        if options.only.lower() not in document.title.lower():
            continue
        print(f"{document.title} ({document.path.name})", flush=True)
        outcome = run_document(document.text, _choices(document.title, options))
        _print_outcome(outcome, options.verbose)
        bad += not outcome.good
    return int(bad > 0)


def _print_outcome(outcome: Outcome, verbose: bool) -> None:
    for ran in outcome.cells:
        said = f"error: {ran.error}" if ran.error else "ok"
        said += f", {ran.verdict}" if ran.verdict else ""
        if ran.cell.skipped:
            said += f", {ran.cell.skipped} lines for the notebook skipped"
        print(f"  line {ran.cell.line:4d}: {said}")
        if verbose and ran.verdict == "other output":
            print("    here:", *ran.printed.splitlines(), sep="\n      ")
            shown = ran.cell.shown[: len(ran.printed.splitlines()) + 1]
            print("    in the document:", *shown, sep="\n      ")
    counted = Counter(ran.verdict for ran in outcome.cells if ran.verdict)
    parts = [f"{count} {kind}" for kind, count in sorted(counted.items())]
    print(f"  {len(outcome.cells) - outcome.failed} of {len(outcome.cells)} cells run"
          + (f"; {', '.join(parts)}" if parts else ""), flush=True)  # fmt: skip


def _choices(title: str, options: Namespace) -> Choices:
    known = KNOWN.get(title, Choices())
    swaps = dict(each.split("=", 1) for each in options.replace)
    swaps = swaps if options.full else {**known.replace, **swaps}
    settings = dict(known.settings)
    if options.devices:
        settings["num_cpu_devices"] = options.devices
    return replace(known, replace=swaps, settings=settings)


def _options(arguments: list[str]) -> Namespace:
    parser = ArgumentParser(prog="python -m tests.jax_documents", description=__doc__)
    parser.add_argument("folder", type=Path, help="a folder of documents saved as text")
    parser.add_argument("--only", default="", help="words of the titles of those to run")
    parser.add_argument("--full", action="store_true", help="sizes as they stand")
    parser.add_argument("--devices", type=int, default=0, help="how many devices there are")
    parser.add_argument("--replace", action="append", default=[], metavar="OLD=NEW")
    parser.add_argument("--verbose", action="store_true", help="show output that is another")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
