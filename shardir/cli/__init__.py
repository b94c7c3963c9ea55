"""The command `shardir`: the commands of the frontend, `as-jax` and `launch`.

Input: the arguments of the command line. Output: `main`, the entry point of the command.
Start at `as_jax.py` and `launch.py`, which add a command each; `shardir/frontend/cli/` has the
other commands.
"""

from shardir.cli import launch as launch
from shardir.cli.as_jax import app as app
from shardir.frontend.cli.main import main as main
