"""`python -m shardir.interop.in_place_of_jax SCRIPT [ARGUMENT ...]`."""

import sys

from shardir.interop.in_place_of_jax.scripts import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
