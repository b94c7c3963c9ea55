"""Planning: choose one strategy for each node of a graph at least cost, within a memory limit.

Input: a `PlanningProblem` (costs and memory of the strategies of each node, costs of each pair of
strategies of neighboring nodes, lifetimes), such as an instance of the IOPDDL contest
(`instance.read_problem`). Output: an assignment with its cost, its peak, and a lower bound
(`solution.Solution`). Start reading in `problem.py`; `exact.py` is the engine for toulbar2, and
`search.py` the one without a solver library, with `elimination.py` for problems without a memory
limit; `automatic.py` runs both.
"""
