"""Solve a mixed integer linear program with HiGHS, as the program of a process of its own.

HiGHS cannot be interrupted within its steps, which may take minutes; a process can be ended at any
time. `HighsProcess` in `exact.py` starts this file. It imports no other module of the package, so
that it starts quickly.

Standard input receives one pickled dictionary, the model. Standard output returns pickled pairs:
`("solution", values)` for each better solution, `("bound", number)` for higher lower bounds, and
last `("end", state)` or `("error", text)`. The process exits when its standard input is closed.
"""

import os
import pickle
import sys
import threading
import time
from typing import Any, BinaryIO

import highspy
import numpy as np

BOUND_INTERVAL_SECONDS = 0.1
"""The minimum time between two messages about bounds."""


def main() -> None:
    """Solve the model of standard input."""
    output = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)  # HiGHS prints its name and version.
    model = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    try:
        _solve(model, output)
    except Exception as error:
        _send(output, "error", f"{type(error).__name__}: {error}")


def _exit_with_parent() -> None:
    """Exit when the parent closes the pipe, or ends."""
    sys.stdin.buffer.read()
    os._exit(1)


def _send(output: BinaryIO, kind: str, content: object) -> None:
    pickle.dump((kind, content), output)
    output.flush()


def _solve(model: dict[str, Any], output: BinaryIO) -> None:
    count = model["integer_count"]
    create: Any = highspy.Highs  # Its type has no annotations.
    solver = create()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("mip_rel_gap", 0.0)
    solver.setOptionValue("mip_abs_gap", 0.999)  # Costs are integers.
    if model["threads"] is not None:
        solver.setOptionValue("threads", model["threads"])
    solver.passModel(_linear_program(model))
    if model["start"] is not None:
        solver.setSolution(count, np.arange(count, dtype=np.int32), model["start"])
    solver.setOptionValue("time_limit", max(model["end"] - time.time(), 0.0))
    best_bound, next_time = -np.inf, 0.0

    def send_solution(event: Any) -> None:
        _send(output, "solution", np.array(event.data_out.mip_solution[:count]))

    def send_bound(event: Any) -> None:
        nonlocal best_bound, next_time
        bound, now = event.data_out.mip_dual_bound, time.monotonic()
        if np.isfinite(bound) and bound > best_bound and now >= next_time:
            best_bound, next_time = bound, now + BOUND_INTERVAL_SECONDS
            _send(output, "bound", bound)

    solver.cbMipImprovingSolution += send_solution
    solver.cbMipInterrupt += send_bound
    solver.cbMipLogging += send_bound
    solver.solve()
    status, info = solver.getModelStatus(), solver.getInfo()
    if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
        _send(output, "solution", np.array(solver.getSolution().col_value[:count]))
    if np.isfinite(info.mip_dual_bound):
        _send(output, "bound", info.mip_dual_bound)
    states = {
        highspy.HighsModelStatus.kOptimal: "optimal",
        highspy.HighsModelStatus.kInfeasible: "infeasible",
    }
    _send(output, "end", states.get(status, "stopped"))


def _linear_program(model: dict[str, Any]) -> Any:
    program = highspy.HighsLp()
    count = len(model["costs"])
    program.num_col_ = count
    program.num_row_ = len(model["lower"])
    program.col_cost_ = model["costs"]
    program.col_lower_ = np.zeros(count)
    program.col_upper_ = np.ones(count)
    program.row_lower_ = model["lower"]
    program.row_upper_ = model["upper"]
    kinds = [highspy.HighsVarType.kContinuous] * count
    integer_count = model["integer_count"]
    kinds[:integer_count] = [highspy.HighsVarType.kInteger] * integer_count
    program.integrality_ = kinds
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    program.a_matrix_.start_ = model["row_starts"]
    program.a_matrix_.index_ = model["columns"]
    program.a_matrix_.value_ = model["values"]
    return program


if __name__ == "__main__":
    main()
