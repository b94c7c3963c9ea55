"""Entry point of `python -m shardir`: the command line."""

from shardir.cli import main

main()
