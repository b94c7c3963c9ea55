"""The command `shardir`: the commands of the frontend, and `as-jax`.

Input: the arguments of the command line. Output: `main`, the entry point of the command.
Start at `as_jax.py`, which adds `as-jax`; `shardir/frontend/cli/` has the other commands.
"""

from shardir.cli.as_jax import app as app
from shardir.frontend.cli.main import main as main
