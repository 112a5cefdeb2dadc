"""The least recomputation, proven: an integer program over all schedules of a small problem.

In the form of Checkmate (Jain et al., MLSys 2020), with two changes. Values can be freed between the
operations of a stage, as eager kernels free them; and an operation runs again only in the stage that reads its
result (laziness), which closes the gap much sooner. A lazy optimum is not always the optimum: where there is
room early and none later, a value is best made before it is read. ``lazy=False`` leaves the rule out, and is a
bound on every schedule that runs its recomputations between two operations of the backward in the forward's
order, once each.

A stage is an operation of the backward, and with laziness only one that reads values of the forward. In stage
``j``

    A[j, x]  x is there when the stage begins
    R[j, k]  forward operation k runs again
    F[j, k, x]  x is freed right after that
"""

from __future__ import annotations

import dataclasses

import highspy
import numpy as np

from aot_partition.memory.problem import Problem, Schedule


@dataclasses.dataclass
class Optimum:
    """What the solver knows.

    Args:
        seconds: Recomputation of the best schedule found, or None if there is none.
        bound: No schedule takes less.
        proven: The two are equal, to a thousandth.
        infeasible: Proven that there is no schedule within the budget.
        schedule: The schedule.
    """

    seconds: float | None
    bound: float
    proven: bool
    infeasible: bool
    schedule: Schedule | None


class _Program:
    def __init__(self) -> None:
        self.cost: list[float] = []
        self.upper: list[float] = []
        self.integer: list[bool] = []
        self.start: list[int] = [0]
        self.index: list[int] = []
        self.value: list[float] = []
        self.row_lower: list[float] = []
        self.row_upper: list[float] = []

    def variable(self, *, integer: bool = True, upper: float = 1.0, cost: float = 0.0) -> int:
        self.cost.append(cost)
        self.upper.append(upper)
        self.integer.append(integer)
        return len(self.cost) - 1

    def row(self, terms: list[tuple[int, float]], *, lower: float = -np.inf, upper: float = np.inf) -> None:
        for variable, factor in terms:
            self.index.append(variable)
            self.value.append(factor)
        self.start.append(len(self.index))
        self.row_lower.append(lower)
        self.row_upper.append(upper)

    def solve(self, time_limit: float, warm: dict[int, float] | None) -> highspy.Highs:
        solver = highspy.Highs()
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("time_limit", time_limit)
        solver.setOptionValue("threads", 1)
        solver.setOptionValue("mip_rel_gap", 1e-3)
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self.cost), len(self.row_lower)
        lp.col_cost_ = np.array(self.cost)
        lp.col_lower_ = np.zeros(len(self.cost))
        lp.col_upper_ = np.array(self.upper)
        lp.row_lower_ = np.array(self.row_lower)
        lp.row_upper_ = np.array(self.row_upper)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.array(self.start)
        lp.a_matrix_.index_ = np.array(self.index)
        lp.a_matrix_.value_ = np.array(self.value)
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        lp.integrality_ = [kinds[integer] for integer in self.integer]
        solver.passModel(lp)
        if warm:
            solver.setSolution(len(warm), np.array(list(warm)), np.array(list(warm.values())))
        solver.run()
        return solver


def solve_exactly(
    problem: Problem,
    budget: int,
    *,
    time_limit: float = 30.0,
    known: Schedule | None = None,
    lazy: bool = True,
) -> Optimum:
    """Find the schedule with the least recomputation whose peak is within a budget.

    Args:
        problem: A small problem: up to about 75 operations in the forward.
        budget: Bytes.
        time_limit: Seconds.
        known: A schedule to start from.
        lazy: Whether an operation runs again only right before its result is read.
    """
    return _Model(problem, budget, lazy).solve(time_limit, known)


class _Model:
    def __init__(self, problem: Problem, budget: int, lazy: bool) -> None:
        self.problem, self.budget, self.lazy = problem, budget, lazy
        self.program = _Program()
        self.unit = problem.seconds / 100
        # Coefficients around one: the solver tolerates errors of a millionth.
        self.scale = budget / 100
        self.values = [s for s in problem.maker if s not in problem.outputs]
        self.stages = [t for t, needs in enumerate(problem.needs) if needs or not lazy]
        self.last_stage = self._last_stages()
        self.there: dict[tuple[int, int], int] = {}
        self.again: dict[tuple[int, int], int] = {}
        self._add_variables()
        self._add_forward()
        for j in range(len(self.stages)):
            self._add_stage(j)
        self._add_idle()

    def _last_stages(self) -> dict[int, int]:
        """Map each storage to the last stage in which it, or what is remade from it, is read."""
        problem = self.problem
        last: dict[int, int] = {}
        for j, t in enumerate(self.stages):
            for s in problem.needs[t]:
                last[s] = j
        for operation in reversed(problem.forward):
            latest = max((last.get(s, -1) for s in operation.makes), default=-1)
            for s in operation.reads:
                if s in problem.maker and operation.replayable:
                    last[s] = max(last.get(s, -1), latest)
        return last

    def _add_variables(self) -> None:
        problem, program = self.problem, self.program
        for j in range(len(self.stages)):
            for s in self.values:
                if self.last_stage.get(s, -1) >= j:
                    self.there[j, s] = program.variable()
            for k, operation in enumerate(problem.forward):
                useful = any(
                    s not in problem.outputs and self.last_stage.get(s, -1) >= j for s in operation.makes
                )
                if operation.replayable and useful:
                    self.again[j, k] = program.variable(cost=operation.seconds / self.unit)

    def _limit(self, terms: list[tuple[int, float]], constant: float) -> None:
        self.program.row(
            [(v, size / self.scale) for v, size in terms if size], upper=(self.budget - constant) / self.scale
        )

    def _resident(self, j: int) -> list[tuple[int, float]]:
        sizes = self.problem.sizes
        return [(self.there[j, s], sizes[s]) for s in self.values if (j, s) in self.there]

    def _add_forward(self) -> None:
        problem = self.problem
        for k, operation in enumerate(problem.forward):
            constant, terms = float(operation.scratch), []
            for s, made in problem.maker.items():
                if made > k:
                    continue
                if s in problem.outputs or problem.last_read[s] >= k:
                    constant += problem.sizes[s]
                elif (0, s) in self.there:
                    terms.append((self.there[0, s], float(problem.sizes[s])))
            self._limit(terms, constant)

    def _add_stage(self, j: int) -> None:
        problem, program, sizes = self.problem, self.program, self.problem.sizes
        t = self.stages[j]
        need = set(problem.needs[t])
        before, during = problem.backward_own
        constant = problem.tangent_bytes + problem.output_bytes
        again = {k: self.again[j, k] for k in range(len(problem.forward)) if (j, k) in self.again}
        made: dict[int, int] = {}
        for s in self.values:
            k = problem.maker[s]
            present = [(self.there[j, s], 1.0)] if (j, s) in self.there else []
            remade = [(again[k], 1.0)] if k in again else []
            if remade:
                made[s] = program.variable(integer=False)
                program.row([(made[s], 1.0), (again[k], -1.0), *present], lower=0)
            if (j + 1, s) in self.there:
                minus = [(v, -1.0) for v, _ in (*present, *remade)]
                program.row([(self.there[j + 1, s], 1.0), *minus], upper=0)
            if s in need:
                program.row([*present, *remade], lower=1)
        for k, variable in again.items():
            operation = problem.forward[k]
            for s in operation.reads:
                if s in problem.maker and s not in problem.outputs:
                    sources = [(self.there[j, s], -1.0)] if (j, s) in self.there else []
                    if problem.maker[s] in again:
                        sources.append((again[problem.maker[s]], -1.0))
                    program.row([(variable, 1.0), *sources], upper=0)
            if self.lazy and need.isdisjoint(operation.makes):
                # Lazily: somebody in this very stage reads it.
                readers = {r for s in operation.makes for r in problem.readers[s] if r in again}
                program.row([(variable, 1.0), *((again[r], -1.0) for r in readers)], upper=0)
        resident = self._resident(j)
        self._limit(resident, constant + before[t])
        level = program.variable(integer=False, upper=1e9)
        program.row([(level, -1.0), *((v, size / self.scale) for v, size in resident)], lower=0, upper=0)
        for k in again:
            operation = problem.forward[k]
            above = program.variable(integer=False, upper=1e9)
            added = [(made[s], sizes[s] / self.scale) for s in operation.makes if s in made]
            program.row([(above, -1.0), (level, 1.0), *added], lower=0, upper=0)
            self._limit([(above, self.scale)], constant + before[t] + operation.scratch)
            freed = []
            for s in {*operation.reads, *operation.makes}:
                if s not in problem.maker or s in problem.outputs or s in need or not sizes[s]:
                    continue
                free = program.variable(integer=False)
                freed.append((free, -sizes[s] / self.scale))
                program.row([(free, 1.0), (again[k], -1.0)], upper=0)
                if (j + 1, s) in self.there:
                    program.row([(free, 1.0), (self.there[j + 1, s], 1.0)], upper=1)
                for reader in problem.readers[s]:
                    if reader > k and reader in again:
                        program.row([(free, 1.0), (again[reader], 1.0)], upper=1)
            level = above
            if freed:
                level = program.variable(integer=False, upper=1e9)
                program.row([(level, -1.0), (above, 1.0), *freed], lower=0, upper=0)
        self._limit([(level, self.scale)], constant + during[t])

    def _add_idle(self) -> None:
        """Operations of the backward that read nothing of the forward."""
        problem = self.problem
        _, during = problem.backward_own
        constant = problem.tangent_bytes + problem.output_bytes
        following = 0
        most: dict[int, int] = {}
        for t in range(len(problem.backward)):
            if following < len(self.stages) and t == self.stages[following]:
                following += 1
            else:
                most[following] = max(most.get(following, 0), during[t])
        for j, level in most.items():
            self._limit(self._resident(j), constant + level)

    def solve(self, time_limit: float, known: Schedule | None) -> Optimum:
        solver = self.program.solve(time_limit, self._assignment(known) if known else None)
        status, info = solver.getModelStatus(), solver.getInfo()
        if status == highspy.HighsModelStatus.kInfeasible:
            return Optimum(None, np.inf, True, True, None)
        bound = info.mip_dual_bound * self.unit
        if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return Optimum(None, bound, False, False, None)
        schedule = self._schedule(solver.getSolution().col_value)
        seconds = self.problem.recompute_seconds(schedule)
        return Optimum(seconds, bound, status == highspy.HighsModelStatus.kOptimal, False, schedule)

    def _schedule(self, values: list[float]) -> Schedule:
        saved = frozenset(s for s in self.values if (0, s) in self.there and values[self.there[0, s]] > 0.5)
        stage_of = {t: j for j, t in enumerate(self.stages)}
        order: list[int] = []
        for t in range(len(self.problem.backward)):
            if t in stage_of:
                j = stage_of[t]
                for k in range(len(self.problem.forward)):
                    if (j, k) in self.again and values[self.again[j, k]] > 0.5:
                        order.append(k)
            order.append(~t)
        return self.problem.prune(Schedule(saved, tuple(order)))

    def _assignment(self, schedule: Schedule) -> dict[int, float]:
        """Return the values of the variables that a schedule determines."""
        problem = self.problem
        values = dict.fromkeys((*self.there.values(), *self.again.values()), 0.0)
        stage_of = {t: j for j, t in enumerate(self.stages)}
        j = 0
        runs: list[tuple[int, int]] = []
        for entry in schedule.backward:
            if entry >= 0:
                runs.append((j, entry))
            elif ~entry in stage_of:
                j = stage_of[~entry] + 1
        for j, k in runs:
            if (j, k) in self.again:
                values[self.again[j, k]] = 1.0
        wanted: set[int] = set()
        per_stage: dict[int, list[int]] = {}
        for j, k in runs:
            per_stage.setdefault(j, []).append(k)
        for j in reversed(range(len(self.stages))):
            wanted |= set(problem.needs[self.stages[j]])
            for k in reversed(per_stage.get(j, [])):
                wanted -= set(problem.forward[k].makes)
                wanted |= {
                    s for s in problem.forward[k].reads if s in problem.maker and s not in problem.outputs
                }
            for s in wanted:
                if (j, s) in self.there:
                    values[self.there[j, s]] = 1.0
        return values
