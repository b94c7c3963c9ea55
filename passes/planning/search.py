"""The search engine: message passing for lower bounds, and local search for solutions.

The memory of each point (`network`) has a price, a Lagrange multiplier, which is added to the costs
of the strategies of the nodes that are alive there. Message passing bounds the cost of the problem
with these prices from below, and chooses an assignment in each pass; the prices rise at the points
where the assignment uses more than the limit. The best assignments are repaired and improved by
local search, whose moves optimize the strategies of a tree of nodes.

Problems whose memory is not limited, and whose graph is like a tree, are solved by elimination of
their nodes instead (`elimination.py`): the solution is then proven optimal.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial

import numpy as np

from shardir.passes.planning import message_kernels, tree_kernels
from shardir.passes.planning.elimination import find_optimum, is_memory_sufficient
from shardir.passes.planning.kernel_compiler import Floats, Ints, Kernel, compile_kernels
from shardir.passes.planning.kernel_records import FORBIDDEN_COST, Memory, Tree
from shardir.passes.planning.network import Network
from shardir.passes.planning.problem import (
    InfeasibleProblemError,
    PlanningProblem,
    infeasible_problem_error,
    interrupted_search_error,
)
from shardir.passes.planning.restriction import SlackProblem
from shardir.passes.planning.solution import (
    Incumbent,
    Progress,
    Solution,
    TimeLimitError,
    evaluate,
)

PASSES_WITHOUT_PRICES = 20
"""The number of passes before the first prices."""
FIRST_STEP = 0.1
MIN_STEP = 2e-4
"""The rise of the bound that a step of the prices aims at, relative to the scale of costs."""
PATIENCE = 60
"""The number of passes without a higher bound after which the prices return to the best ones."""
MOMENTUM = 0.9
"""The share of earlier overuse in the direction of a step of the prices."""
IMPROVEMENT_SHARE = 0.02
"""The duration of one phase of local search, relative to the time since the start."""
TREE_SIZE = 40
"""The maximum number of nodes of a move, without those that have one edge."""
MOVES_PER_CALL = 50
REPAIR_ROUNDS = 10
CERTIFY_SHARE = 0.05
"""The maximum share of the time that the proofs of bounds take."""
RESTRICTION_SHARE = 0.15
"""The maximum share of the time in which the search eliminates the nodes of restricted problems."""
RESTRICTED_PASSES = (20, 80, 320)
"""The numbers of passes after which a search without a time limit solves restricted problems."""
IMPROVED_PASSES = 10
"""The number of passes after which such a search begins a phase of local search."""
MOVES_PER_NODE = 5
"""The number of moves of such a phase for each node."""
MAX_PAIRS_OF_MOVES = 1_000_000
"""The number of pairs of strategies that the moves of such a phase compare at most for each node of
their trees: 0.1 s on one core of an AMD EPYC processor."""
RESTRICTION_LEVELS = 5
RESTRICTION_FACTOR = 1 / 8
"""The factor from one threshold of restricted problems to the next one."""


def solve_by_search(
    problem: PlanningProblem,
    *,
    seconds: float = 60.0,
    start: Sequence[int] | None = None,
    progress: Progress | None = None,
    seed: int = 0,
) -> Solution:
    """Return the best solution that the search finds in `seconds`, with a lower bound.

    `start` is an assignment to begin with. Ctrl-C ends the search with the best solution. Raises
    `PlanningError` if there is no solution, or none was found in time.
    """
    incumbent = Incumbent(problem, seconds, None if start is None else tuple(start), progress)
    search(incumbent, seed)
    return incumbent.solution()


def search(
    incumbent: Incumbent, seed: int = 0, is_done: Callable[[], bool] = lambda: False
) -> None:
    """Improve `incumbent` until its time limit, until it is optimal, or until `is_done` or Ctrl-C.

    A problem that `find_optimum` solves is solved by it. Raises `PlanningError` if there is no
    solution, but not if none was found in time.
    """
    try:
        optimum = find_optimum(incumbent.problem, incumbent.check_time)
        if optimum is None:
            _Search(incumbent, seed, is_done).run()
        else:
            incumbent.offer(optimum)
            incumbent.raise_bound(evaluate(incumbent.problem, optimum).cost)
    except TimeLimitError:
        pass
    except KeyboardInterrupt:
        if incumbent.best is None:
            raise interrupted_search_error() from None


def list_solutions(problem: PlanningProblem, known_cost: float = math.inf) -> list[Solution]:
    """Return the solutions below `known_cost` that elimination, message passing and local search
    find with a fixed number of steps, each cheaper than the next one. They are the same ones in
    each run; there are none if the memory is limited.

    The search ends if it proves that no solution costs less than `known_cost`. Raises
    `PlanningError` if there is no solution.
    """
    found: list[Solution] = []

    def keep(_seconds: float, cost: int | None, _bound: int | None) -> None:
        best = incumbent.best
        if best is not None and best[0] < (found[-1].cost if found else known_cost):
            found.append(evaluate(problem, best[1]))

    incumbent = Incumbent(problem, math.inf, progress=keep)
    optimum = find_optimum(problem, incumbent.check_time)
    if optimum is not None:
        incumbent.offer(optimum)
    elif is_memory_sufficient(problem):
        _Search(incumbent, 0, lambda: (incumbent.lower_bound or 0) >= known_cost).run_passes()
    return found[::-1]


@cache
def load_kernels() -> dict[str, Kernel]:
    """Return the compiled kernels."""
    return compile_kernels(
        [
            message_kernels.pull_message,
            message_kernels.message_place,
            message_kernels.choose_strategy,
            message_kernels.sweep,
            message_kernels.find_edge_minima,
            tree_kernels.random_below,
            tree_kernels.change_usage,
            tree_kernels.grow_tree,
            tree_kernels.release_tree,
            tree_kernels.set_base_costs,
            tree_kernels.optimize_tree,
            tree_kernels.propose_strategies,
            tree_kernels.is_changed,
            tree_kernels.change_usages,
            tree_kernels.improve,
        ]
    )


def _count_calls(calls: int, part: float) -> range:
    """Return the numbers of a part of some calls."""
    return range(int(part * calls))


class _Candidate:
    """An assignment to improve, and the prices for which it was chosen."""

    def __init__(self, strategies: Ints, prices: Floats, score: float) -> None:
        self.strategies = strategies
        self.prices = prices
        self.score = score


class _Search:
    def __init__(self, incumbent: Incumbent, seed: int, is_done: Callable[[], bool]) -> None:
        self.incumbent = incumbent
        self.is_done = is_done
        self.kernels = load_kernels()
        self.network = network = Network(incumbent.problem, incumbent.check_time)
        self.messages = np.zeros(network.message_count)
        self.reduced = network.costs.copy()
        self.prices = np.zeros(network.point_count)
        self.node_prices = np.zeros(network.node_count)
        self.minima = np.zeros(int(network.counts.max(initial=1)))
        self.strategies = np.zeros(network.node_count, np.int64)
        self.bound = -math.inf
        self.rounding_error = math.inf
        """The greatest rounding error of the bound and of the costs with its messages."""
        self.least_cost = network.least_positive_cost()
        self.best_prices = self.prices
        self.best_messages = self.messages
        self.best: Ints | None = None
        self.best_cost = math.inf
        self.candidate: _Candidate | None = None
        self._adopt()
        count = network.node_count
        self.random_state = np.array([(seed * 7919 + 12345) % 2**31], np.int64)
        self.tree = Tree(
            members=np.zeros(count, np.int64),
            parents=np.zeros(count, np.int64),
            places=np.full(count, -1, np.int64),
            touched=np.zeros(count, np.int64),
            proposed=np.zeros(count, np.int64),
            base_costs=np.zeros(len(network.costs)),
            tree_costs=np.zeros(len(network.costs)),
            choices=np.zeros(network.message_count, np.int64),
        )

    def run(self) -> None:
        network, incumbent = self.network, self.incumbent
        for number in range(PASSES_WITHOUT_PRICES):
            self._raise_bound(self._sweep(number % 2 == 1))
        self._certify()
        step = FIRST_STEP * self._scale
        direction = np.zeros(network.point_count)
        certified = improved = restricted = incumbent.elapsed_seconds
        certify_seconds = improve_seconds = restrict_seconds = 0.0
        passes_without_rise, number = 0, 0
        while incumbent.remaining > 0 and not incumbent.is_optimal and not self.is_done():
            number += 1
            bound = self._sweep(number % 2 == 0)
            if bound > self.bound:
                if bound > self.bound + 0.5 * step:
                    step *= 1.2
                self._raise_bound(bound)
                passes_without_rise = 0
            else:
                passes_without_rise += 1
            usage = network.usage_of(self.strategies)
            self._consider(usage)
            now = incumbent.elapsed_seconds
            if now - restricted > restrict_seconds / RESTRICTION_SHARE:
                self._solve_restricted()
                restricted = incumbent.elapsed_seconds
                restrict_seconds = restricted - now
            if passes_without_rise > PATIENCE:
                step = max(0.6 * step, MIN_STEP * self._scale)
                passes_without_rise = 0
                direction[:] = 0.0
                self._set_prices(self.best_prices)
            else:
                overuse = (usage - network.limit) / max(network.limit, 1)
                direction = MOMENTUM * direction + (1.0 - MOMENTUM) * overuse
                self._step_prices(direction, min(max(self.bound + step - bound, 0.0), step))
            now = incumbent.elapsed_seconds
            if now - certified > certify_seconds / CERTIFY_SHARE or self.bound >= self.best_cost:
                self._certify()
                certified = incumbent.elapsed_seconds
                certify_seconds = certified - now
                now = certified
            if now - improved > improve_seconds:
                duration = max(IMPROVEMENT_SHARE * now, 0.02)
                self._improve_candidate(partial(self._wait, duration))
                improved = incumbent.elapsed_seconds
                improve_seconds = improved - now
        self._certify()

    def run_passes(self) -> None:
        """Pass messages without prices of memory, and solve restricted problems after some passes.
        The result does not depend on the time that this takes."""
        nodes = self.network.node_count
        pairs = sum(edge.costs.size for edge in self.incumbent.problem.edges)
        moves = min(MOVES_PER_NODE * nodes, MAX_PAIRS_OF_MOVES * nodes // max(pairs, 1))
        calls = max(1, moves // MOVES_PER_CALL)
        for number in range(1, max(RESTRICTED_PASSES) + 1):
            self._raise_bound(self._sweep(number % 2 == 0))
            self._consider(self.network.usage_of(self.strategies))
            if number % IMPROVED_PASSES == 0:
                self._certify()
                self._improve_candidate(partial(_count_calls, calls))
            if number in RESTRICTED_PASSES:
                self._solve_restricted()
            if self.incumbent.is_optimal or self.is_done():
                break

    @property
    def _scale(self) -> float:
        """The scale of costs. A bound of 0 does not state it: if only the limit of the memory makes
        the cost positive, the cost is at least the least positive one."""
        return max(abs(self.bound), self.least_cost)

    def _sweep(self, is_backward: bool) -> float:
        """Pass messages in one direction, choose strategies, and return the bound."""
        network = self.network
        into, out = network.earlier, network.later
        if is_backward:
            into, out = out, into
        bound: float = self.kernels["sweep"](
            int(is_backward),
            network.node_count,
            network.graph,
            into,
            out,
            self.messages,
            self.reduced,
            self.minima,
            self.strategies,
        )
        return bound - float(self.prices.sum()) * network.limit

    def _raise_bound(self, bound: float) -> None:
        if bound > self.bound:
            self.bound = bound
            self.best_prices = self.prices
            self.best_messages = self.messages.copy()

    def _set_prices(self, prices: Floats) -> None:
        """Set the prices, rounded so that all sums of them are exact."""
        unit = 2.0 ** (math.frexp(float(prices.sum()) + 1e-100)[1] - 50)
        self.prices = np.rint(prices / unit) * unit
        node_prices = self._node_prices(self.prices)
        changes = np.repeat(node_prices - self.node_prices, self.network.counts)
        self.reduced += changes * self.network.usages
        self.node_prices = node_prices

    def _node_prices(self, prices: Floats) -> Floats:
        """Return the price of a unit of memory for each node."""
        sums = np.concatenate([[0.0], prices.cumsum()])
        node_prices: Floats = sums[self.network.ends] - sums[self.network.starts]
        return node_prices

    def _step_prices(self, direction: Floats, rise: float) -> None:
        """Raise the prices along `direction`, by the step whose first-order rise is `rise`."""
        direction = np.where((self.prices <= 0.0) & (direction < 0.0), 0.0, direction)
        length = float((direction * direction).sum())
        if length > 0.0:
            scale = rise / length / max(self.network.limit, 1)
            self._set_prices(np.maximum(self.prices + scale * direction, 0.0))

    def _solve_restricted(self) -> None:
        """Find the best assignment near the bound by elimination of nodes, with the largest
        threshold for which their tables are small. If it includes all assignments that cost less
        than the best one, that is proven to be optimal."""
        incumbent = self.incumbent
        if not is_memory_sufficient(incumbent.problem):
            return
        self._certify()
        gap = self._scale if incumbent.cost is None else self._distance_to(incumbent.cost)
        problem = SlackProblem(incumbent.problem, self.network, self.best_messages)
        for level in range(RESTRICTION_LEVELS):
            threshold = gap * RESTRICTION_FACTOR**level
            try:
                found = problem.find_near(threshold, incumbent.check_time)
            except InfeasibleProblemError:
                is_solved = True
            else:
                is_solved = found is not None
                if found is not None:
                    incumbent.offer(found)
                    self._adopt()
            if is_solved:
                cost = incumbent.cost
                if cost is not None and threshold >= self._distance_to(cost):
                    incumbent.raise_bound(cost)
                break

    def _distance_to(self, cost: int) -> float:
        """Return a number that the difference of a cost to the bound does not exceed."""
        return cost - self.bound + self.rounding_error

    def _certify(self) -> None:
        """Prove the best bound: compute it anew, and subtract the greatest rounding error."""
        network = self.network
        messages, prices = self.best_messages, self.best_prices
        minima = np.zeros(network.edge_count)
        self.kernels["find_edge_minima"](network.edge_count, network.graph, messages, minima)
        reduced = network.costs + np.repeat(self._node_prices(prices), network.counts) * (
            network.usages
        )
        largest = float(np.abs(reduced).max()) + float(np.abs(messages).max(initial=0.0))
        places = np.concatenate([network.to_first, network.to_second])
        nodes = np.concatenate([network.first, network.second])
        counts = network.counts[nodes]
        within = np.arange(int(counts.sum())) - np.repeat(counts.cumsum() - counts, counts)
        np.add.at(
            reduced,
            np.repeat(network.offsets[nodes], counts) + within,
            messages[np.repeat(places, counts) + within],
        )
        node_minima = np.minimum.reduceat(reduced, network.offsets[:-1])
        unit = math.frexp(float(prices.sum()) + 1e-100)[1] - 50
        price_units = sum(map(int, np.rint(prices * 2.0**-unit)))
        # The sum of all prices, multiplied by the limit, without a rounding error but the last.
        paid = price_units * network.limit
        paid_float = float(paid * 2**unit) if unit >= 0 else paid / 2**-unit
        largest += float(np.abs(minima).max(initial=0.0)) + abs(paid_float)
        roundings = 4 * network.node_count + 6 * network.edge_count + 16
        self.rounding_error = 2.0**-52 * largest * roundings
        bound = math.fsum([*minima, *node_minima, -paid_float]) - self.rounding_error
        if bound > self._highest_cost():
            raise infeasible_problem_error(self.incumbent.problem.name)
        self.incumbent.raise_bound(math.ceil(bound))

    def _highest_cost(self) -> float:
        """Return a cost that no solution is above."""
        network = self.network
        highest = np.maximum.reduceat(network.costs, network.offsets[:-1]).sum()
        finite = np.where(np.isfinite(network.tables), network.tables, -1.0)
        starts, places = np.unique(network.tables_of, return_inverse=True)
        if len(starts):
            highest += np.maximum(np.maximum.reduceat(finite, starts)[places], 0.0).sum()
        return float(highest) * (1.0 + 1e-9)

    def _consider(self, usage: Ints) -> None:
        """Keep the chosen assignment if it is the best one, or the best one to improve."""
        network = self.network
        cost = network.cost_of(self.strategies)
        excess = np.maximum(usage / max(network.limit, 1) - 1.0, 0.0)
        if cost < self.best_cost and not excess.any():
            self._accept(self.strategies.copy(), cost)
        penalty = self._scale * float(excess.max(initial=0.0) + 3.0 * excess.sum() / len(usage)
                                        if len(usage) else 0.0)  # fmt: skip
        score = cost + penalty
        if self.candidate is None or score < self.candidate.score:
            self.candidate = _Candidate(self.strategies.copy(), self.prices, score)

    def _accept(self, strategies: Ints, cost: float) -> None:
        if cost < min(self.best_cost, FORBIDDEN_COST):
            self.best, self.best_cost = strategies, cost
            self.incumbent.offer(self.network.strategies_of_problem(strategies))

    def _adopt(self) -> None:
        """Go on with the best solution of another engine, if it is better."""
        best = self.incumbent.best
        if best is not None and best[0] < self.best_cost:
            self.best = self.network.strategies_of_network(best[1])
            self.best_cost = self.network.cost_of(self.best)

    def _wait(self, seconds: float, part: float) -> Iterator[None]:
        """Yield until a part of some seconds has passed."""
        end = time.monotonic() + min(part * seconds, self.incumbent.remaining)
        while time.monotonic() < end:
            yield

    def _improve_candidate(self, steps: Callable[[float], Iterable[object]]) -> None:
        """Repair and improve the best candidate, and improve the best solution further. `steps`
        returns the steps of a part of the phase."""
        network, candidate = self.network, self.candidate
        assert candidate is not None
        self.candidate = None
        strategies = candidate.strategies
        slack = network.limit - network.usage_of(strategies)
        unit = self._scale / max(network.limit, 1)
        for number in range(REPAIR_ROUNDS):
            if (slack >= 0).all() or self.incumbent.remaining < 0:
                break
            # Points with overuse become dearer, and overuse weighs more, in each round.
            excess = np.maximum(-slack, 0) / max(network.limit, 1)
            raised = candidate.prices.mean() + 1e-3 * unit / len(slack)
            prices = candidate.prices + raised * 0.1 * 2.0**number * excess / excess.mean()
            self._improve(strategies, slack, prices, 0.1 * unit * 4.0**number, steps(0.1))
        self._improve(strategies, slack, candidate.prices, 0.1 * unit, steps(1.0))
        if (slack >= 0).all():
            self._accept(strategies, network.cost_of(strategies))
        self._adopt()
        if self.best is not None:
            strategies = self.best.copy()
            slack = network.limit - network.usage_of(strategies)
            self._improve(strategies, slack, candidate.prices, 0.1 * unit, steps(1.0))
            self._accept(strategies, network.cost_of(strategies))

    def _improve(
        self,
        strategies: Ints,
        slack: Ints,
        prices: Floats,
        penalty: float,
        steps: Iterable[object],
    ) -> None:
        """Improve an assignment in some steps, in place; `slack` is the memory that remains."""
        network = self.network
        memory = Memory(
            network.usages, self._node_prices(prices), network.starts, network.ends, slack
        )
        overuse = np.array([float(-np.minimum(slack, 0).sum())])
        for _ in steps:
            if self.incumbent.is_optimal or self.is_done():
                break
            self.kernels["improve"](
                MOVES_PER_CALL,
                TREE_SIZE,
                penalty,
                network.node_count,
                network.graph,
                network.neighbors,
                network.costs,
                memory,
                strategies,
                self.random_state,
                self.tree,
                overuse,
            )
