"""Faults put into the backend, one at a time: each must be noticed by a scenario.

The historic CUDA-graph backend had half of them.
"""

from __future__ import annotations

import dataclasses

import pytest
import scenarios
import torch

from aot_cudagraphs import captured, hot_path, inputs, lanes, module, outputs, sharing
from aot_cudagraphs.cache import Acquaintance, RecordingCache
from aot_cudagraphs.islands import _Classifier
from aot_cudagraphs.simulator import SimulatedEngine, SimulatedRecording

FAULTS = {}


def fault(*noticed_by):
    """Register a function that breaks something, and the scenarios that must notice."""

    def register(function):
        FAULTS[function.__name__] = (function, noticed_by)
        return function

    return register


def without_lines(patch, *beginnings):
    """Leave lines out of the generated function."""
    write = hot_path._Writer.line

    def line(self, text):
        if not text.startswith(beginnings):
            write(self, text)

    patch.setattr(hot_path._Writer, "line", line)


def plan_with(patch, change):
    """Change how outputs are handed out."""
    plan = outputs.plan_outputs

    def planned(made, recorded_with, *args, **kwargs):
        found = plan(made, recorded_with, *args, **kwargs)
        changed = tuple(change(one, made[i], recorded_with) for i, one in enumerate(found.outputs))
        return dataclasses.replace(found, outputs=changed)

    patch.setattr(module, "plan_outputs", planned)


# --- inputs ------------------------------------------------------------------------------------------------


@fault(scenarios.values_change)
def inputs_are_not_copied(patch):
    patch.setattr(hot_path._Writer, "copy_in", lambda self: None)


@fault(scenarios.inputs_move)
def addresses_are_not_checked(patch):
    check = hot_path._Writer.check

    def unchecked(self, **kwargs):
        plan, self._inputs = self._inputs, dataclasses.replace(self._inputs, in_place={})
        check(self, **kwargs)
        self._inputs = plan

    patch.setattr(hot_path._Writer, "check", unchecked)


@fault(scenarios.inputs_move)
def moved_inputs_are_not_told(patch):
    patch.setattr(inputs.InputPlan, "moved", lambda self, args: [])
    addresses_are_not_checked(patch)


@fault(scenarios.moving_inputs_come_to_be_copied)
def moved_inputs_are_never_copied(patch):
    patch.setattr(Acquaintance, "note_moved", lambda self, moved, args: None)
    patch.setattr(Acquaintance, "note", lambda self, args: None)


@fault(scenarios.moving_inputs_come_to_be_copied)
def everything_is_copied(patch):
    patch.setattr(Acquaintance, "note", lambda self, args: self.copied.update(range(len(args))))


@fault(scenarios.writes_reach_inputs)
def writes_are_not_copied_back(patch):
    patch.setattr(hot_path._Writer, "write_back", lambda self: None)


@fault(scenarios.writes_are_counted)
def writes_in_place_are_not_counted(patch):
    without_lines(patch, "increment_version")


@fault(scenarios.shapes_dtypes_and_strides_differ)
def looks_are_not_compared(patch):
    patch.setattr(module, "_guard", lambda tensors: lambda *given: True)


@fault(scenarios.shapes_dtypes_and_strides_differ)
def dtypes_are_no_part_of_the_key(patch):
    entry = inputs._entry
    patch.setattr(
        inputs, "_entry", lambda arg: entry(arg)[1:] if isinstance(arg, torch.Tensor) else entry(arg)
    )


@fault(scenarios.shapes_dtypes_and_strides_differ)
def strides_are_no_part_of_the_key(patch):
    entry = inputs._entry
    patch.setattr(
        inputs,
        "_entry",
        lambda arg: (*entry(arg)[:2], *entry(arg)[3:]) if isinstance(arg, torch.Tensor) else entry(arg),
    )


@fault(scenarios.numbers_differ)
def numbers_are_compared_by_equality(patch):
    entry = inputs._entry
    patch.setattr(inputs, "_entry", lambda arg: arg if isinstance(arg, (int, float)) else entry(arg))
    patch.setattr(
        hot_path._Writer,
        "_compare",
        lambda self, i, value: self.constants.update({f"N{i}": value}) or f"args[{i}] != N{i}",
    )


@fault(scenarios.numbers_differ)
def numbers_are_frozen(patch):
    patch.setattr(hot_path._Writer, "_compare", lambda self, i, value: "False")


@fault(scenarios.inputs_overlap)
def overlaps_are_no_part_of_the_key(patch):
    patch.setattr(inputs, "_overlaps", lambda args, mutated: ())


@fault(scenarios.inputs_overlap)
def overlapping_inputs_are_copied_apart(patch):
    patch.setattr(inputs, "overlapping_groups", lambda args, mutated: [])


@fault(scenarios.strided_and_lazy_inputs)
def stand_ins_are_contiguous(patch):
    patch.setattr(
        inputs, "empty_like_strided", lambda x: torch.empty_like(x, memory_format=torch.contiguous_format)
    )
    patch.setattr(
        hot_path,
        "_writable",
        lambda i, layout: f"args[{i}]" if layout.plain else f"args[{i}].as_strided({layout.size}, (1,))",
    )


@fault(scenarios.numbers_on_the_host_are_read)
def numbers_on_the_host_are_frozen(patch):
    patch.setattr(_Classifier, "is_scalar", lambda self, node: False)


@fault(scenarios.wrong_calls_raise)
def arguments_are_not_counted(patch):
    without_lines(patch, "if len(args) !=")
    patch.setattr(module.CudaGraphModule, "_check", lambda self, args: None)


@fault(scenarios.wrong_calls_raise)
def gradients_are_lost_silently(patch):
    check = module.CudaGraphModule._check

    def unchecked(self, args):
        with torch.no_grad():
            check(self, args)

    patch.setattr(module.CudaGraphModule, "_check", unchecked)


# --- outputs -----------------------------------------------------------------------------------------------


@fault(scenarios.kept_outputs_stay)
def outputs_are_not_copied(patch):
    plan_with(
        patch,
        lambda one, made, given: outputs.Shown(one.tensor) if isinstance(one, outputs.Cloned) else one,
    )


@fault(scenarios.relations_of_outputs)
def views_of_inputs_are_copied(patch):
    plan_with(
        patch,
        lambda one, made, given: (
            outputs.Cloned(made.detach(), None) if isinstance(one, outputs.ArgumentView) else one
        ),
    )


@fault(scenarios.relations_of_outputs)
def inputs_are_returned_as_stand_ins(patch):
    plan_with(
        patch,
        lambda one, made, given: (
            outputs.Shown(given[one.position]) if isinstance(one, outputs.Argument) else one
        ),
    )


@fault(scenarios.relations_of_outputs)
def outputs_that_share_memory_are_copied_apart(patch):
    def change(one, made, given):
        return dataclasses.replace(one, group=None) if isinstance(one, outputs.Cloned) else one

    plan = outputs.plan_outputs

    def planned(made, recorded_with, *args, **kwargs):
        found = plan(made, recorded_with, *args, **kwargs)
        return dataclasses.replace(
            found, outputs=tuple(change(one, None, None) for one in found.outputs), groups=()
        )

    patch.setattr(module, "plan_outputs", planned)


@fault(scenarios.outputs_keep_strides)
def copies_are_contiguous(patch):
    patch.setattr(hot_path, "clone_alone", lambda x: x.contiguous().clone())


# --- memory ------------------------------------------------------------------------------------------------


@fault(scenarios.steps_in_flight, scenarios.kept_outputs_of_the_pool_stay)
def nothing_is_ever_alive(patch):
    patch.setattr(lanes.Block, "alive", property(lambda self: False))


@fault(scenarios.threads_do_not_meet)
def calls_do_not_take_their_lane(patch):
    enter = lanes.Lanes.enter

    def entered(self):
        lane = enter(self)
        lane.busy = False
        return lane

    patch.setattr(lanes.Lanes, "enter", entered)


@fault(scenarios.outputs_outlive_the_graph)
def outputs_do_not_own_their_memory(patch):
    plan_with(
        patch,
        lambda one, made, given: (
            outputs.Shown(SimulatedEngine().unowned(made)) if isinstance(one, outputs.Shown) else one
        ),
    )


@fault(scenarios.backwards_that_run_twice)
def what_is_saved_is_overwritten_by_a_backward_that_keeps_it(patch):
    patch.setattr(captured._compat, "backward_keeps_graph", lambda: False)


@fault(scenarios.backwards_of_several_kinds)
def memory_that_others_read_is_given_away(patch):
    patch.setattr(captured._compat, "backward_keeps_graph", lambda: False)
    patch.setattr(lanes.Lane, "unowned", lambda self: [])


@fault(scenarios.memory_that_is_read_later)
def memory_is_given_away_by_name(patch):
    """As if no two values shared memory."""
    patch.setattr(sharing, "_returns_new_memory", lambda target: True)


@fault(scenarios.values_between_islands)
def values_between_islands_are_handed_out(patch):
    patch.setattr(captured.CapturedGraph, "_hand_out", lambda self, lane, leaves: leaves)


@fault(scenarios.gradients_of_the_pool_from_two_backwards)
def paths_are_not_compared(patch):
    patch.setattr(lanes.Lane, "path", property(lambda self: (), lambda self, path: None), raising=False)


@fault(scenarios.graphs_are_limited)
def nothing_is_evicted(patch):
    patch.setattr(RecordingCache, "to_evict", lambda self: iter(()))


@fault(scenarios.memory_is_limited)
def the_budget_is_ignored(patch):
    patch.setattr(module.CudaGraphModule, "_over_budget", lambda self: False)


@fault(scenarios.memory_is_given_back)
def memory_is_kept(patch):
    patch.setattr(lanes.Lanes, "reset", lambda self: None)


@fault(scenarios.memory_is_given_back)
def recordings_are_not_released(patch):
    patch.setattr(lanes.Lane, "release", lambda self: None)
    kept = []
    init = lanes.Lane.__init__
    patch.setattr(lanes.Lane, "__init__", lambda self, pool: (init(self, pool), kept.append(self))[0])


# --- capture and replay ------------------------------------------------------------------------------------


@fault(scenarios.values_change)
def nothing_is_replayed(patch):
    without_lines(patch, "replay()")


@fault(scenarios.each_call_runs_once)
def the_first_replay_is_left_out(patch):
    replay = SimulatedRecording.replay
    patch.setattr(
        SimulatedRecording,
        "replay",
        lambda self: replay(self) if hasattr(self, "seen") else setattr(self, "seen", 1),
    )


@fault(scenarios.each_call_runs_once)
def recording_executes(patch):
    record = SimulatedEngine.record

    def executed(self, function, given, pool, generators=()):
        function(list(given))
        return record(self, function, given, pool, generators)

    patch.setattr(SimulatedEngine, "record", executed)


@fault(scenarios.each_call_runs_once)
def warming_up_runs_twice(patch):
    patch.setattr(SimulatedEngine, "warm_up", lambda self, f, given: (f(list(given)), f(given))[1])


@fault(scenarios.random_numbers_advance)
def random_numbers_are_frozen(patch):
    replay = SimulatedRecording.replay

    def frozen(self):
        self.state = getattr(self, "state", torch.get_rng_state())
        torch.set_rng_state(self.state)
        replay(self)

    patch.setattr(SimulatedRecording, "replay", frozen)


@fault(scenarios.random_numbers_advance)
def random_numbers_are_drawn_without_advancing(patch):
    replay = SimulatedRecording.replay

    def rewound(self):
        with torch.random.fork_rng():
            replay(self)

    patch.setattr(SimulatedRecording, "replay", rewound)


@fault(scenarios.refused_captures_leave_no_trace)
def refused_captures_are_tried_again(patch):
    refuse = module.CudaGraphModule._refuse

    def forgotten(self, entry, error, progress):
        refuse(self, entry, error, progress)
        entry.state = module.State.CAPTURABLE

    patch.setattr(module.CudaGraphModule, "_refuse", forgotten)


@fault(scenarios.refused_captures_leave_no_trace)
def refused_captures_draw_random_numbers(patch):
    record = SimulatedEngine.record

    def careless(self, *args):
        try:
            return record(self, *args)
        except Exception:
            torch.rand(1)
            raise

    patch.setattr(SimulatedEngine, "record", careless)


class NeverFree:
    """What a lock is to others when its holder forgets it."""

    def __init__(self, lock):
        self.lock = lock

    def acquire(self, blocking=True):
        return False

    def release(self):
        if self.lock.locked():
            self.lock.release()


@fault(scenarios.refused_captures_leave_no_trace)
def refused_captures_stay_under_way(patch):
    from aot_cudagraphs.simulator import recorder

    def locked(self, refusal):
        if not isinstance(recorder._capture, NeverFree):
            patch.setattr(recorder, "_capture", NeverFree(recorder._capture))
        return refuse(self, refusal)

    refuse = recorder.Recorder._refuse
    patch.setattr(recorder.Recorder, "_refuse", locked)


def test_there_are_enough():
    assert len(FAULTS) >= 20


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_noticed(name, monkeypatch):
    break_it, noticed_by = FAULTS[name]
    break_it(monkeypatch)
    for scenario in noticed_by:
        with pytest.raises(Exception):  # noqa: B017, PT011 - an assertion, or whatever broken memory leads to
            scenario()
