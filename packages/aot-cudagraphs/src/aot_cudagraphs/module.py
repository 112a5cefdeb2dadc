"""One island: a graph that is run, then recorded, then replayed.

::

    a call of the island
      │ the function generated for the last recording in this lane: is the call one for it?  ──yes──> replayed
      │ no: key of the call
      ▼
    entry of that key, in one of three states
      WARMING_UP   it runs on a side stream, for good, and counts
      CAPTURABLE   recorded if this lane has no recording of it yet; then replayed
      UNCAPTURED   it runs as it is

Recording executes nothing, so whatever the path, a call does its work once. A capture that is refused leaves no
trace but a `Decision`.
"""

from __future__ import annotations

import functools
import itertools
import logging
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import fx

from aot_core import boxed_code_generator, parse_settings
from aot_core.analysis import find_input_mutations
from aot_core.protocol import Decision
from aot_cudagraphs import _compat
from aot_cudagraphs._compat import pytree
from aot_cudagraphs.cache import Entry, RecordingCache, State
from aot_cudagraphs.engines import engine_for
from aot_cudagraphs.errors import (
    ArgumentCountError,
    CaptureFailedError,
    CaptureRefusedError,
    RequiresGradientError,
)
from aot_cudagraphs.hot_path import Run, generate
from aot_cudagraphs.inputs import InputPlan, key_of, overlapping_groups, plan_inputs, unsupported_input
from aot_cudagraphs.lanes import Block, Lane, Lanes, lanes_for
from aot_cudagraphs.outputs import Destination, plan_outputs
from aot_cudagraphs.settings import CaptureSettings
from aot_cudagraphs.sharing import inputs_read_by_storage
from aot_cudagraphs.strided import tensor_in
from aot_cudagraphs.tape import Progress, Tape, generators_of

if TYPE_CHECKING:
    from aot_cudagraphs.engine import Engine, Recording

__all__ = ["CudaGraphModule", "Recorded", "boxed_copy", "plain_structure"]

log = logging.getLogger(__name__)

_numbers = itertools.count()


class Recorded:
    """One recording of an island in a lane, ready to be replayed.

    Attributes:
        run: Serves a call that may be one for this recording.
        run_matching: Serves a call that is known to have its key.
        inputs: How it reads its inputs.
        number: Its own.
        path: The recordings that its step has replayed before it.
        outdated: It is to be recorded anew before it is replayed.
    """

    def __init__(self, island: CudaGraphModule, entry: Entry, lane: Lane, disposes: bool) -> None:
        self.entry = entry
        self.lane = lane
        self.disposes = disposes
        self.outdated = False
        self.number = next(_numbers)
        self.path = lane.path
        self.run: Run
        self.run_matching: Run
        self.inputs: InputPlan
        self.recording: Recording
        self.blocks: tuple[Block, ...] = ()
        # Not kept: the memory of an island goes with it.
        self._island = weakref.ref(island)

    @property
    def evictable(self) -> bool:
        """Tell whether nobody can read what it wrote."""
        return not any(block.alive for block in self.blocks)

    @property
    def bytes(self) -> int:
        """Bytes that it holds outside the pool."""
        return self.inputs.bytes

    def outdate(self, *, shared: bool) -> None:
        """Have it recorded anew; if ``shared``, so that its outputs are never given away."""
        self.outdated = True
        self.entry.shared_outputs |= shared
        self._forget_recent()

    def _forget_recent(self) -> None:
        island = self._island()
        if island is not None:
            island.forget_recent(self)

    def release(self) -> None:
        """Give its memory back."""
        self._forget_recent()
        self.entry.recorded.pop(self.lane, None)
        # What holds stand-ins and outputs goes first, so that the pool finds nothing in use.
        self.blocks = ()
        del self.run, self.run_matching, self.inputs
        self.recording.release()


class CudaGraphModule:
    """A graph of ATen operations that is captured on its second call and replayed from then on.

    The first call, for each combination of shapes, dtypes and numbers, runs uncaptured. Safe to be called by several
    threads. It records no gradients: a model is trained with ``torch.compile(backend="aot_cudagraphs")``.

    Args:
        gm: A graph that can be captured as a whole; `apply_cuda_graphs` finds what can in one that can't. Not
            changed, and not to be changed.
        options: See `CaptureSettings`.
        engine: Who captures; by default what ``options["capture"]`` says.
        device: What is captured; by default where the first tensor of the first call is.
        lanes: Memory of a compiled graph that this is a part of. By default it has its own.
        destinations: Where each output goes; by default to the caller.
        disposable: Positions of inputs that nobody reads after this.
        overlaps: Whether a call's inputs may share memory with one that is written. Looked at in each call.
        looks_known: Positions of the tensors that have the same dtype, sizes and strides in all calls, as the caller
            has checked.
        decide: Called with each `Decision`. They are logged in any case.
        name: What to call it.

    Raises:
        UnanalysedOperationError: the graph is not one of ATen operations.
        UnknownOptionError, InvalidOptionValueError: see there.
    """

    def __init__(
        self,
        gm: fx.GraphModule,
        options: Mapping[str, Any] | CaptureSettings | None = None,
        *,
        engine: Engine | None = None,
        device: torch.device | None = None,
        lanes: Lanes | None = None,
        destinations: Sequence[Destination] | None = None,
        disposable: Collection[int] = (),
        overlaps: bool = True,
        looks_known: Collection[int] = (),
        decide: Callable[[Decision], None] | None = None,
        name: str = "cuda_graph_module",
    ) -> None:
        if not isinstance(options, CaptureSettings):
            options = parse_settings(CaptureSettings, options, backend="aot_cudagraphs")
        self.settings = options
        self.name = name
        placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
        self._count = len(placeholders)
        self._structure: Any = gm.graph.output_node().args[0]
        leaves, self._spec = pytree.tree_flatten(self._structure)
        self._flat = isinstance(self._structure, (list, tuple)) and len(leaves) == len(self._structure)
        self._destinations: Sequence[Destination] = destinations or ["caller"] * len(leaves)
        position = {node: i for i, node in enumerate(placeholders)}
        writes = find_input_mutations(gm)
        self._mutated = frozenset(position[write.input] for write in writes)
        reshaping = next((write for write in writes if write.kind in ("metadata", "storage")), None)
        self._obstacle = (
            None if reshaping is None else f"{reshaping.writer.name} changes sizes or storage of an input"
        )
        self._by_storage = inputs_read_by_storage(gm)
        self._tape = Tape(gm)
        self._gm = gm
        self._eager = boxed_copy(gm)
        self._engine = engine if engine is not None else engine_for(options.capture)
        self._device = device
        self._lanes = lanes
        self._disposable = frozenset(disposable)
        self._overlaps = overlaps and bool(self._mutated)
        self._looks_known = frozenset(looks_known)
        self._decide = decide
        self._cache = RecordingCache(options.max_graphs)
        self._recent: dict[tuple[Lane, bool], Recorded] = {}
        self._told: set[str] = set()

    # --- calls ---------------------------------------------------------------------------------------------

    def __call__(self, *args: Any) -> Any:
        """Run the graph.

        Raises:
            ArgumentCountError: another number of arguments than the graph takes.
            RequiresGradientError: gradients are on and an argument requires one.
            CaptureFailedError: a capture failed and ``strict`` is set.
        """
        lanes = self._own_lanes(args)
        if lanes is None:
            return self._restored(self.run_uncaptured(list(args)))
        lane = lanes.enter()
        if lane is None:
            self.tell(
                "in-flight", "skip", "outputs of too many calls are alive at once; this one runs uncaptured"
            )
            return self._restored(self.run_uncaptured(list(args)))
        try:
            return self._restored(self.run_in(lane, list(args)))
        finally:
            lanes.leave(lane)

    def run_in(self, lane: Lane, args: list[Any], *, disposes: bool = False) -> list[Any]:
        """Run the graph in a lane that the caller has taken.

        Args:
            lane: Where to record and replay.
            args: The inputs. Emptied.
            disposes: The disposable inputs may be overwritten.

        Returns:
            The leaves of the graph's output.
        """
        recorded = self._recent.get((lane, disposes))
        if recorded is not None:
            outputs = recorded.run(args)
            if outputs is not None:
                return outputs
        return self._find_and_run(lane, args, disposes)

    def run_uncaptured(self, args: list[Any]) -> list[Any]:
        """Run the graph as it is, and return the leaves of its output."""
        self._check(args)
        return self._leaves(self._eager(args))

    def _find_and_run(self, lane: Lane, args: list[Any], disposes: bool) -> list[Any]:
        self._check(args)
        assert self._lanes is not None  # whoever has a lane has lanes
        obstacle = self._obstacle or unsupported_input(args, self._lanes.device)
        if self._by_storage and any(
            not self._by_storage.isdisjoint(group) for group in overlapping_groups(args, self._mutated)
        ):
            obstacle = "an input that overlaps a written one is read by as_strided"
        if obstacle is not None:
            self.tell("unsupported-input", "fallback", obstacle)
            return self._leaves(self._eager(args))
        warming_up = False
        with self._lanes.lock:
            looks, addresses = key_of(args, lane, self._mutated, self._by_storage)
            entry = self._cache.entry(looks, (addresses, lane.path, disposes))
            recorded = self._usable(entry, lane, args)
            if recorded is None and entry.state is not State.UNCAPTURED:
                entry.known.note(args)
                warming_up = entry.known.calls < self.settings.warmup
                entry.known.calls += warming_up
                entry.state = State.WARMING_UP if warming_up else State.CAPTURABLE
            if recorded is None and entry.state is State.CAPTURABLE:
                recorded = self._record(entry, lane, args, disposes)
        if recorded is None:
            run = self._engine.warm_up(self._eager, args) if warming_up else self._eager(args)
            return self._leaves(run)
        outputs = recorded.run_matching(args)
        assert outputs is not None  # its key and its addresses have just been compared
        return outputs

    def _usable(self, entry: Entry, lane: Lane, args: Sequence[Any]) -> Recorded | None:
        """Return the entry's recording in a lane, if it can serve a call."""
        recorded = entry.recorded.get(lane)
        if recorded is None:
            return None
        moved = recorded.inputs.moved(args)
        if recorded.outdated or moved:
            entry.known.note_moved(moved, args)
            entry.lost.add(lane)
            recorded.lane.drop(recorded)
            return None
        self._recent[(lane, recorded.disposes)] = recorded
        return recorded

    def _check(self, args: Sequence[Any]) -> None:
        if len(args) != self._count:
            raise_count(self.name, self._count, args)
        if torch.is_grad_enabled():
            for i, arg in enumerate(args):
                if isinstance(arg, torch.Tensor) and arg.requires_grad:
                    raise RequiresGradientError(
                        f"Argument {i} of {self.name} requires a gradient, and a replay records none. Call it under "
                        'torch.no_grad(), or train with torch.compile(model, backend="aot_cudagraphs").'
                    )

    # --- recording -----------------------------------------------------------------------------------------

    def _record(self, entry: Entry, lane: Lane, args: Sequence[Any], disposes: bool) -> Recorded | None:
        """Record a call, or return None if it is to run uncaptured."""
        if self._cache.churning and self._cache.full:
            self.tell("churn", "skip", "recordings came and went too often; those that are there stay")
            return None
        unowned = lane.unowned()
        if unowned:
            # The pool would give this memory to the new recording. Next time it will find it owned; and always, if it
            # is one of several that read the same outputs.
            for block in unowned:
                block.producer.outdate(shared=lane not in entry.lost)
            entry.lost.discard(lane)
            return None
        with torch.inference_mode(False), torch.no_grad():
            recorded = Recorded(self, entry, lane, disposes)
            in_lane = {i for i, arg in enumerate(args) if _lies_in(lane, arg)}
            in_place = (set(range(len(args))) - entry.known.copied) | in_lane
            inputs = plan_inputs(args, in_place, self._mutated, self._by_storage)
            given = inputs.recorded_with(args)
            given_away = _give_away(lane, args, self._disposable, given) if disposes else ()
            recording = self._capture(entry, lane, given)
            if recording is None:
                return None
            outputs = plan_outputs(
                recording.outputs,
                inputs.recorded_with(args),
                self._destinations,
                clone=self.settings.outputs == "clone",
                disposable=not entry.shared_outputs,
                engine=self._engine,
                producer=recorded,
                lane_inputs=in_lane,
                given_away=given_away,
            )
            recording.outputs.clear()
            recorded.recording, recorded.inputs, recorded.blocks = recording, inputs, outputs.blocks

            generated = functools.partial(
                generate,
                inputs,
                outputs,
                count=self._count,
                replay=recording.replay,
                raise_count=functools.partial(raise_count, self.name, self._count),
                lane=lane,
                number=recorded.number,
                name=self.name,
            )
            recorded.run_matching = generated(
                guard=None, guarded=(), compare_numbers=False, watch_overlaps=False
            )
            # What lies in the lane looks as it did when it was recorded.
            known = self._looks_known | in_lane
            guarded = [i for i, arg in enumerate(args) if isinstance(arg, torch.Tensor) and i not in known]
            guard = _guard([args[i] for i in guarded])
            recorded.run = generated(
                guard=guard, guarded=guarded, compare_numbers=True, watch_overlaps=self._overlaps
            )
        for block in outputs.blocks:
            block.settle()
        entry.recorded[lane] = recorded
        lane.recorded.append(recorded)
        if self._over_budget():
            recorded.lane.drop(recorded)
            entry.state = State.UNCAPTURED
            self.tell(
                "memory-budget",
                "skip",
                f"its recording would exceed memory_budget={self.settings.memory_budget} bytes",
            )
            return None
        self._evict(lane)
        self._recent[(lane, disposes)] = recorded
        return recorded

    def _capture(self, entry: Entry, lane: Lane, given: list[Any]) -> Recording | None:
        progress, generators = Progress(), generators_of(self._gm, given)
        try:
            return self._engine.record(
                lambda values: self._tape.run(values, progress), given, lane.pool, generators
            )
        except Exception as error:
            self._refuse(entry, error, progress)
            return None

    def _refuse(self, entry: Entry, error: Exception, progress: Progress) -> None:
        node = progress.node
        subject = self.name if node is None else node.name
        source = progress.source
        if isinstance(error, CaptureRefusedError):
            code, detail = error.refusal.code, f"{error.refusal.op} {error.refusal.reason}"
            source = source or error.source
        else:
            code, detail = "capture-failed", f"{type(error).__name__}: {error}"
        where = f" ({source})" if source else ""
        if self.settings.strict:
            raise CaptureFailedError(
                f"{self.name} can't be captured: {subject}{where}: {detail}. Without strict it would run uncaptured."
            ) from error
        entry.state = State.UNCAPTURED
        self.tell(code, "fallback", detail, subject=subject, source=source)

    def _over_budget(self) -> bool:
        budget = self.settings.memory_budget
        assert self._lanes is not None
        return budget is not None and self._lanes.held_bytes > budget

    def _evict(self, lane: Lane) -> None:
        for recorded in self._cache.to_evict():
            # Another thread may be in a lane other than this.
            present = recorded in recorded.lane.recorded
            if present and (recorded.lane is lane or not recorded.lane.busy):
                self._cache.evictions += 1
                recorded.lane.drop(recorded)
                self.tell(
                    "max-graphs", "evict", f"more than max_graphs={self.settings.max_graphs} recordings"
                )

    def forget_recent(self, recorded: Recorded) -> None:
        """Look a recording up by its key before it is replayed next."""
        place = (recorded.lane, recorded.disposes)
        if self._recent.get(place) is recorded:
            del self._recent[place]

    # --- everything else -----------------------------------------------------------------------------------

    def reset(self) -> None:
        """Forget all recordings and give their memory back. The next call starts anew."""
        if self._lanes is not None:
            with self._lanes.lock:
                self.forget()
                self._lanes.reset()

    def forget(self) -> None:
        """Forget all recordings; their lanes own them."""
        self._cache = RecordingCache(self.settings.max_graphs)
        self._recent.clear()

    @property
    def states(self) -> list[State]:
        """What becomes of calls, one state for each key met, the most recently used last."""
        return [entry.state for entry in self._cache]

    @property
    def num_graphs(self) -> int:
        """How many recordings there are."""
        return len(self._cache)

    @property
    def recordings(self) -> list[Recording]:
        """What the engine recorded, in no particular order."""
        return [recorded.recording for entry in self._cache for recorded in entry.recorded.values()]

    @property
    def input_plans(self) -> list[InputPlan]:
        """How each recording reads its inputs, in no particular order."""
        return [recorded.inputs for entry in self._cache for recorded in entry.recorded.values()]

    @property
    def held_bytes(self) -> int:
        """Bytes that the recordings, and those that share memory with them, hold."""
        return 0 if self._lanes is None else self._lanes.held_bytes

    def tell(
        self, code: str, action: str, detail: str, *, subject: str | None = None, source: str | None = None
    ) -> None:
        """Record a decision, once for each code and subject."""
        subject = subject or self.name
        if f"{code} {subject}" in self._told:
            return
        self._told.add(f"{code} {subject}")
        decision = Decision("capture", subject, action, code, detail, source)
        log.info("%s", decision)
        if self._decide is not None:
            self._decide(decision)

    def _own_lanes(self, args: Sequence[Any]) -> Lanes | None:
        """Return the lanes, made at the first call; None where nothing can be captured."""
        if self._lanes is None:
            device = self._device or next((arg.device for arg in args if isinstance(arg, torch.Tensor)), None)
            if device is None or not self._engine.available_for(device):
                self.tell(
                    "unavailable", "fallback", f"tensors on {device} can't be captured by {self._engine.name}"
                )
                return None
            self._lanes = lanes_for(self._engine, device, self)
        return self._lanes

    def _leaves(self, outputs: Any) -> list[Any]:
        return list(outputs) if self._flat else pytree.tree_leaves(outputs)

    def _restored(self, leaves: list[Any]) -> Any:
        return plain_structure(pytree.tree_unflatten(leaves, self._spec))


def raise_count(name: str, count: int, args: Sequence[Any]) -> NoReturn:
    """Say that a call has the wrong number of arguments."""
    raise ArgumentCountError(f"{name} takes {count} arguments, got {len(args)}.")


def _guard(tensors: Sequence[torch.Tensor]) -> Callable[..., bool]:
    return _compat.tensor_guard(tensors) or _slow_guard(tensors)


def _slow_guard(tensors: Sequence[torch.Tensor]) -> Callable[..., bool]:
    """Return what `_compat.tensor_guard` does, in Python."""
    looks = [_look(tensor) for tensor in tensors]
    return lambda *given: [_look(tensor) for tensor in given] == looks


def _look(tensor: torch.Tensor) -> tuple[Any, ...]:
    return (
        type(tensor),
        tensor.dtype,
        tensor.device,
        tensor.size(),
        tensor.stride(),
        tensor.is_conj(),
        tensor.is_neg(),
        tensor.is_inference(),
        tensor.requires_grad and torch.is_grad_enabled(),
    )


def _lies_in(lane: Lane, arg: Any) -> bool:
    return isinstance(arg, torch.Tensor) and lane.block_of(arg) is not None


def _give_away(lane: Lane, args: Sequence[Any], disposable: Collection[int], given: list[Any]) -> list[int]:
    """Put in a list, in place of inputs that may be overwritten, tensors that own their memory; the lane lets go.

    Nothing else holds these tensors, so that the memory is free as soon as they are taken from the list and dropped.
    Returns their positions.
    """
    given_away: list[int] = []
    positions: dict[Block, list[int]] = {}
    for i, arg in enumerate(args):
        block = lane.block_of(arg) if isinstance(arg, torch.Tensor) else None
        if block is not None:
            positions.setdefault(block, []).append(i)
    for block, members in positions.items():
        if block.disposable and all(i in disposable for i in members):
            assert block.owner is not None  # it is disposable
            for i in members:
                given[i] = tensor_in(block.owner, args[i])
            block.owner = None
            given_away += members
    return given_away


def boxed_copy(gm: fx.GraphModule) -> Callable[[list[Any]], Any]:
    """Return a graph as a function of one list, which it empties as it goes."""
    graph = fx.Graph()
    output = graph.graph_copy(gm.graph, {})
    graph.output(output)
    graph.set_codegen(boxed_code_generator())
    copied = fx.GraphModule(gm, graph)
    forward: Callable[[list[Any]], Any] = copied.forward
    return forward


def plain_structure(structure: Any) -> Any:
    """Return a structure of lists, tuples and dictionaries instead of fx's immutable ones."""
    if isinstance(structure, tuple) and not hasattr(structure, "_fields"):
        return tuple(map(plain_structure, structure))
    if isinstance(structure, list):
        return list(map(plain_structure, structure))
    if isinstance(structure, dict):
        return {key: plain_structure(value) for key, value in structure.items()}
    return structure
