"""The command `shardir`."""

from shardir.frontend.cli import main as main
