"""Solve a cost function network with toulbar2, as the program of a process of its own.

toulbar2 holds the lock of the Python interpreter until it ends, and cannot be interrupted in all
its steps; a process can be ended at any time. `SolverProcess` in `exact.py` starts this file. It
imports no other module of the package, so that it starts quickly.

Standard input receives one pickled dictionary, the model. Standard output returns the lines that
toulbar2 prints: its bounds, and its solutions as one line of integers each. The last line is
`end optimal`, `end stopped`, or `error` and a text. At SIGINT, toulbar2 ends with its last bound.
The process exits when its standard input is closed, and on Linux when its parent ends, also while
toulbar2 holds the lock.
"""

import ctypes
import os
import pickle
import signal
import sys
import threading
from typing import Any

PR_SET_PDEATHSIG = 1
"""The option of Linux's `prctl` that sets the signal sent at the end of the parent."""


def main() -> None:
    """Solve the model of standard input."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    model = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    try:
        state = _solve(model)
    except Exception as error:
        text = " ".join(str(error).split())
        print(f"error {type(error).__name__}: {text}", flush=True)
    else:
        print(f"end {state}", flush=True)


def _exit_with_parent() -> None:
    """Exit when the parent closes the pipe, or ends."""
    sys.stdin.buffer.read()
    os._exit(1)


def _solve(model: dict[str, Any]) -> str:
    """Solve a model, and return whether toulbar2 has proven its optimum."""
    # toulbar2 would start MPI and divide its work, if this program is a process of an MPI program.
    sys.modules["mpi4py"] = None  # type: ignore[assignment]
    import pytoulbar2

    try:
        best = _find_optimum(pytoulbar2, model)
    except pytoulbar2.tb2.Contradiction:
        # No assignment is cheaper than the upper bound. toulbar2 reports this by the result of
        # `Solve` only where it needs a search.
        best = model["upper_bound"]
    if best is None:
        return "stopped"  # toulbar2 has printed its bound.
    print(f"Dual bound: {best:.0f}")
    return "optimal"


def _find_optimum(pytoulbar2: Any, model: dict[str, Any]) -> float | None:
    """Return the optimal cost, at most the upper bound; `None` if toulbar2 was stopped."""
    # Virtual arc consistency before the search: its bounds are near those of a linear program.
    network: Any = pytoulbar2.CFN(model["upper_bound"], vac=1, verbose=0)
    for node, costs in enumerate(model["costs"]):
        network.AddVariable(f"node {node}", range(len(costs)))
    for node, costs in enumerate(model["costs"]):
        network.AddFunction([node], costs.tolist())
    for a, b, costs in model["edges"]:
        network.AddFunction([a, b], costs.ravel().tolist())
    for nodes, usages, limit in model["memory"]:
        # `AddGeneralizedLinearConstraint` searches all coefficients once for each variable.
        network.CFN.wcsp.postKnapsackConstraint(nodes, _knapsack(usages, limit), kp=True)
    found = network.Solve(showSolutions=1, timeLimit=model["seconds"])
    if network.Option.limited:
        return None
    upper_bound: float = model["upper_bound"]
    return upper_bound if found is None else found[1]


def _knapsack(usages: list[Any], limit: int) -> str:
    """Return the parameters of the constraint that the usages of some nodes do not exceed a limit.

    toulbar2 states it as a lower limit of the negative usages.
    """
    parts = [str(-limit)]
    for own in usages:
        used = own.nonzero()[0].tolist()
        parts.append(str(len(used)))
        parts += [f"{strategy} {-own[strategy]}" for strategy in used]
    return " ".join(parts)


if __name__ == "__main__":
    main()
