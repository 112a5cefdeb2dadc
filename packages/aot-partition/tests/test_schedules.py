"""Search over problems without graphs: against brute force, an integer program, and its own invariants."""

from __future__ import annotations

import itertools
import random

import pytest
from ilp_oracle import solve_exactly
from memory_cases import random_problem

from aot_partition.memory.eviction import Preference, Rehearsal
from aot_partition.memory.floor import least_conceivable_peak
from aot_partition.memory.problem import Operation, Problem, Schedule
from aot_partition.memory.retention import retain
from aot_partition.memory.search import Search


def simulate_slowly(problem: Problem, schedule: Schedule) -> int:
    """Return the peak of a schedule by definition: after each operation, what anyone still reads is live."""
    runs: list[tuple[str, int]] = [("f", k) for k in range(len(problem.forward))]
    runs += [("f", entry) if entry >= 0 else ("b", ~entry) for entry in schedule.backward]
    count = len(problem.forward)
    made: list[tuple[int, int, int]] = []  # storage, position, last read
    latest: dict[int, int] = {}
    for position, (kind, number) in enumerate(runs):
        operation = (problem.forward if kind == "f" else problem.backward)[number]
        for s in operation.reads:
            index = latest[s]
            storage, start, _ = made[index]
            made[index] = (storage, start, position)
        for s in operation.makes:
            # The forward's outputs stay, so that nobody reads a second making of one.
            if s not in problem.outputs or position < count:
                latest[s] = len(made)
            made.append((s, position, position))
    peak = 0
    end = len(runs)
    for position, (kind, number) in enumerate(runs):
        operation = (problem.forward if kind == "f" else problem.backward)[number]
        live = operation.scratch + (problem.tangent_bytes if position >= count else 0)
        for storage, start, last in made:
            if storage in problem.gradients or (storage in problem.outputs and start < count):
                last = end
            if start <= position <= last:
                live += problem.sizes[storage]
        peak = max(peak, live)
    return peak


def cheapest_saved_set(problem: Problem, budget: int) -> float | None:
    """Return the least recomputation over all sets to save, each value recomputed once, at its first use."""
    wanted = [s for s in problem.maker if s not in problem.outputs]
    best: float | None = None
    for count in range(len(wanted) + 1):
        for saved in itertools.combinations(wanted, count):
            schedule = recompute_once(problem, frozenset(saved))
            if schedule is not None and problem.timeline(schedule).peak <= budget:
                seconds = problem.recompute_seconds(schedule)
                best = seconds if best is None else min(best, seconds)
    return best


def recompute_once(problem: Problem, saved: frozenset[int]) -> Schedule | None:
    there = set(saved)
    order: list[int] = []
    for t, needs in enumerate(problem.needs):
        pending = [problem.maker[s] for s in needs if s not in there]
        again: set[int] = set()
        while pending:
            k = pending.pop()
            if not problem.forward[k].replayable:
                return None
            if k not in again:
                again.add(k)
                pending += [
                    problem.maker[s]
                    for s in problem.forward[k].reads
                    if s not in there and s not in problem.outputs
                ]
        for k in sorted(again):
            order.append(k)
            there.update(problem.forward[k].makes)
        order.append(~t)
    return problem.prune(Schedule(saved, tuple(order)))


@pytest.fixture
def rng(seed):
    return random.Random(seed)


def test_timeline_is_the_definition(rng):
    for _ in range(40):
        problem = random_problem(rng)
        schedules = [problem.unplanned()]
        for part in (0.9, 0.7):
            found = Search(problem, evaluations=8).best(int(problem.timeline(schedules[0]).peak * part))
            schedules += [found.schedule] if found else []
        for schedule in schedules:
            assert problem.timeline(schedule).peak == simulate_slowly(problem, schedule)


def test_budgets_are_kept_and_results_are_computable(rng):
    for _ in range(60):
        problem = random_problem(rng, operations=12)
        peak = problem.timeline(problem.unplanned()).peak
        search = Search(problem, evaluations=16)
        for part in (0.95, 0.8, 0.65, 0.5):
            found = search.best(int(peak * part))
            if found is None:
                continue
            assert simulate_slowly(problem, found.schedule) == found.peak <= int(peak * part)
            assert sorted(~e for e in found.schedule.backward if e < 0) == list(range(len(problem.backward)))
            assert all(problem.forward[e].replayable for e in found.schedule.backward if e >= 0)
            assert found.peak >= least_conceivable_peak(problem)


# A search may miss some; in a hundred seeds it missed none.
@pytest.mark.sweep
def test_no_set_of_saved_values_is_cheaper(seed):
    check_saved_sets(seed)


@pytest.mark.parametrize("hard", [1619656785, 1736543021, 124, 373])
def test_no_set_of_saved_values_is_cheaper_in_hard_cases(hard):
    """Values that can't be recomputed and that only others are remade from; results that are made anew.

    In the last of them something dear that nothing will be remade from takes the room of something cheap that is
    still needed.
    """
    check_saved_sets(hard)


def check_saved_sets(seed):
    rng = random.Random(seed)
    for _ in range(12):
        problem = random_problem(rng, operations=6)
        peak = problem.timeline(problem.unplanned()).peak
        for part in (0.9, 0.75):
            cheapest = cheapest_saved_set(problem, int(peak * part))
            found = Search(problem, evaluations=120).best(int(peak * part))
            if cheapest is not None:
                assert found is not None and found.seconds <= cheapest * 1.08 + 1e-9


# The integer programs take a minute a seed.
@pytest.mark.sweep
def test_near_the_optimum(seed):
    check_optimum(seed)


@pytest.mark.parametrize(
    "hard", [613306201, *(pytest.param(seed, marks=pytest.mark.sweep) for seed in (1001, 1017))]
)
def test_near_the_optimum_in_hard_cases(hard):
    """Optima that are not lazy: a value is remade early, where there is room, or for what it is remade from."""
    check_optimum(hard)


def check_optimum(seed):
    """Compare with what an integer program proves, of all schedules and not of lazy ones alone.

    Costs here are whole numbers below ten, so that one miss is a large one.
    """
    rng = random.Random(seed)
    gaps, missed = [], 0
    while len(gaps) < 20:
        problem = random_problem(rng, operations=9)
        budget = int(problem.timeline(problem.unplanned()).peak * rng.choice((0.9, 0.8, 0.7)))
        found = Search(problem, evaluations=120).best(budget)
        optimum = solve_exactly(problem, budget, time_limit=5, lazy=False)
        if found is not None and runs_in_order(found.schedule):
            assert not optimum.infeasible
            assert found.seconds >= optimum.bound * (1 - 1e-3), "the integer program is no lower bound"
        if optimum.proven and optimum.seconds and not optimum.infeasible:
            missed += found is None
            if found is not None:
                gaps.append(max(0.0, found.seconds / optimum.seconds - 1))
    print(f"mean {sum(gaps) / len(gaps):.4f}, worst {max(gaps):.4f}, missed {missed}")
    assert sum(gaps) / len(gaps) <= 0.04
    assert missed <= 3


def runs_in_order(schedule: Schedule) -> bool:
    """Tell whether the integer program can express a schedule: in each stage the forward's order, once each."""
    return all(one < 0 or other < 0 or one < other for one, other in itertools.pairwise(schedule.backward))


def test_what_is_impossible_is_not_found(rng):
    for _ in range(40):
        problem = random_problem(rng)
        assert Search(problem, evaluations=16).best(least_conceivable_peak(problem) - 1) is None


def test_retain_costs_no_more_and_keeps_the_budget(rng):
    for _ in range(60):
        problem = random_problem(rng, operations=12)
        peak = problem.timeline(problem.unplanned()).peak
        schedule = Rehearsal(problem).run(int(peak * 0.7), Preference(), rng)
        if schedule is None:
            continue
        for budget in (int(peak * 0.7), int(peak * 0.85), peak):
            better = retain(problem, schedule, budget, rng)
            assert simulate_slowly(problem, better) <= budget
            assert problem.recompute_seconds(better) <= problem.recompute_seconds(schedule)
        if not problem.never_saved:
            # With all the room there is, nothing but what nobody kept from the start is recomputed.
            assert problem.recompute_seconds(retain(problem, schedule, 10 * peak)) == 0


def chain(count: int, *, kept: tuple[int, ...] = ()) -> Problem:
    """f0 → f1 → …, and a backward that reads them from the last to the first."""
    forward = tuple(Operation(f"f{k}", (k - 1,) if k else (), (k,), 1.0) for k in range(count))
    backward = tuple(
        Operation(f"b{t}", (count - 1 - t, *((count + t - 1,) if t else ())), (count + t,), 1.0)
        for t in range(count)
    )
    return Problem(
        forward, backward, (8,) * (2 * count), frozenset(), frozenset({2 * count - 1}), 0, frozenset(kept)
    )


def dense(count: int) -> Problem:
    """Layers of norm, activation and convolution that each read the concatenation of all that came before."""
    forward, backward, sizes = [], [], []

    def add(name: str, reads: tuple[int, ...], size: int, seconds: float) -> int:
        sizes.append(size)
        forward.append(Operation(name, reads, (len(sizes) - 1,), seconds))
        return len(sizes) - 1

    whole, layers = add("first", (), 16, 70.0), []
    for layer in range(count):
        width = sizes[whole]
        norm = add(f"norm{layer}", (whole,), width, 16.0 + 4.5 * width)
        active = add(f"active{layer}", (norm,), width, 8.0 + 1.3 * width)
        part = add(f"part{layer}", (active,), 4, 70.0 + 1.3 * width)
        layers.append((whole, active, width))
        whole = add(f"whole{layer}", (whole, part), width + 4, 12.0 + 1.3 * width)
    sizes.append(sizes[whole])
    backward.append(Operation("loss", (whole,), (len(sizes) - 1,), 1.0))
    for layer, (before, active, width) in reversed([*enumerate(layers)]):
        sizes.append(width)
        reads = (len(sizes) - 2, active, before)
        backward.append(Operation(f"back{layer}", reads, (len(sizes) - 1,), 200.0, scratch=width))
    return Problem(
        tuple(forward),
        tuple(backward),
        tuple(sizes),
        frozenset(),
        frozenset({len(sizes) - 1}),
        0,
        frozenset(),
    )


@pytest.mark.parametrize("part", [0.75, 0.7])
def test_concatenations_are_planned_near_the_optimum(part):
    """What a concatenation reads is small, and saved in its place: several values are exchanged at once."""
    problem = dense(6)
    budget = int(problem.timeline(problem.unplanned()).peak * part)
    search = Search(problem)
    found = search.best(budget)
    optimum = solve_exactly(problem, budget, time_limit=30, known=found.schedule)
    assert optimum.proven and found.peak <= budget
    assert found.seconds <= 1.05 * optimum.seconds


def test_a_tight_chain_recomputes_values_more_than_once():
    problem = chain(24)
    found = Search(problem, evaluations=200).best(48)
    assert found is not None and found.peak <= 48
    again = [e for e in found.schedule.backward if e >= 0]
    assert len(again) > len(set(again))


def test_what_several_values_are_remade_from_is_kept_between_them():
    """The product of an LSTM's step, of which all gates are parts: not read itself, and dearer than what is."""
    a, v, product, *gates = range(6)
    forward = (
        Operation("a", (), (a,), 1.0),
        Operation("v", (), (v,), 2.0),
        Operation("product", (a,), (product,), 10.0),
        *(Operation(f"gate{gate}", (product,), (gate,), 1.0) for gate in gates),
    )
    backward = (
        Operation("b0", (v,), (), 1.0, scratch=6),
        Operation("b1", (gates[0],), (), 1.0, scratch=3),
        Operation("b2", (gates[1],), (), 1.0, scratch=1),
        Operation("b3", (gates[2],), (), 1.0, scratch=1),
        Operation("b4", (v,), (6,), 1.0),
    )
    problem = Problem(forward, backward, (1, 2, 4, 2, 2, 2, 0), frozenset(), frozenset({6}), 0)
    # Nothing but a fits beside what b0 reads. There is no room for the product and v around b1.
    expected = 10.0 + 3 * 1.0 + 2.0
    assert solve_exactly(problem, 9, time_limit=20).seconds == pytest.approx(expected)
    found = Search(problem, evaluations=100).best(9)
    assert found is not None and found.peak <= 9
    assert found.seconds == pytest.approx(expected)


def test_never_saved_is_never_saved():
    problem = chain(6, kept=(1, 3))
    found = Search(problem, evaluations=20).best(10_000)
    assert found is not None
    assert found.schedule.saved.isdisjoint({1, 3})
    assert {1, 3} <= set(found.schedule.backward)


def test_the_same_seed_gives_the_same_schedule(rng):
    problem = random_problem(rng, operations=12)
    budget = int(problem.timeline(problem.unplanned()).peak * 0.8)
    one, other = (Search(problem, evaluations=30, seed=3).best(budget) for _ in range(2))
    assert one == other


def test_a_schedule_that_reads_what_is_not_there_is_an_error():
    with pytest.raises(ValueError, match="neither saves nor makes"):
        chain(3).timeline(Schedule(frozenset(), (~0, ~1, ~2)))


@pytest.mark.sweep
def test_within_the_optimum_over_many(rng):
    gaps = []
    while len(gaps) < 300:
        problem = random_problem(rng, operations=rng.randrange(5, 14))
        budget = int(problem.timeline(problem.unplanned()).peak * rng.uniform(0.55, 0.95))
        found = Search(problem, evaluations=200).best(budget)
        optimum = solve_exactly(problem, budget, time_limit=10)
        if optimum.infeasible:
            assert found is None
        elif optimum.proven and optimum.seconds and found is not None:
            gaps.append(found.seconds / optimum.seconds - 1)
    assert sum(gaps) / len(gaps) <= 0.02
