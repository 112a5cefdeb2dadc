"""A whole graph, captured as far as it can be: its islands replayed, and what lies between them run.

::

    call(inputs)
      │ a lane: a free one for a step that begins, the forward's own for its backward
      ▼
    island_0 ── refused operation ── island_1 ── …        values stay where the islands put them
      │
      ▼
    outputs: what lies in the lane and goes to the caller is copied, if it is not to be handed out itself
"""

from __future__ import annotations

import logging
import operator
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from aot_core import boxed_code_generator, parse_settings
from aot_core.protocol import Decision
from aot_cudagraphs import _compat
from aot_cudagraphs.engine import Engine
from aot_cudagraphs.engines import engine_for
from aot_cudagraphs.islands import Partition, partition
from aot_cudagraphs.lanes import Block, Lane, Lanes, lanes_for
from aot_cudagraphs.module import CudaGraphModule, boxed_copy, plain_structure
from aot_cudagraphs.outputs import Destination, clone_together
from aot_cudagraphs.settings import CaptureSettings
from aot_cudagraphs.sharing import disposable_inputs, returned_inputs

__all__ = ["CapturedGraph", "apply_cuda_graphs", "captured_graphs"]

log = logging.getLogger(__name__)

_all_graphs: weakref.WeakSet[CapturedGraph] = weakref.WeakSet()


def captured_graphs() -> list[CapturedGraph]:
    """Return the captured graphs of this process that are in use, in no particular order."""
    return list(_all_graphs)


class CapturedGraph:
    """A graph of ATen operations with its islands captured.

    Args:
        gm: The graph, its nodes with ``meta["val"]``. Not changed.
        settings: Options.
        part: Its islands.
        lanes: The memory; one for a forward and its backward.
        destinations: Where each output goes: ``"caller"``, or ``"passed"`` to the backward.
        continues: It is the backward of a forward with the same lanes, and may write to what that saved for it.
        overlaps: Whether inputs may share memory with one that the graph writes.
        looks_known: Positions of the inputs that have the dtype, sizes and strides in all calls that the graph was
            traced with.
        decide: Called with each `Decision`.
        engine: Who captures.
        name: What to call it.

    Attributes:
        name: As given.
        partition: Its islands.
        lanes: Its memory.
        islands: The modules that run them.
    """

    def __init__(
        self,
        gm: fx.GraphModule,
        settings: CaptureSettings,
        part: Partition,
        lanes: Lanes,
        *,
        destinations: Sequence[Destination] | None = None,
        continues: bool = False,
        overlaps: bool = True,
        looks_known: Collection[int] = (),
        decide: Callable[[Decision], None] | None = None,
        engine: Engine,
        name: str = "graph",
    ) -> None:
        self.partition = part
        self._settings = settings
        self.lanes = lanes
        self._continues = continues
        self._decide = decide
        self.name = name
        leaves, self._spec = _compat.pytree.tree_flatten(gm.graph.output_node().args[0])
        self._destinations: Sequence[Destination] = destinations or ["caller"] * len(leaves)
        self._uncaptured = boxed_copy(gm)
        self._told: set[str] = set()
        lanes.end_with(self)
        _all_graphs.add(self)
        common: dict[str, Any] = {"engine": engine, "device": part.device, "lanes": lanes, "decide": decide}
        if part.whole:
            returned = frozenset().union(*returned_inputs(gm))
            count = sum(node.op == "placeholder" for node in gm.graph.nodes)
            island = CudaGraphModule(
                gm,
                settings,
                destinations=self._destinations,
                disposable=set(range(count)) - returned if continues else (),
                overlaps=overlaps,
                looks_known=looks_known,
                name=name,
                **common,
            )
            self.islands: tuple[CudaGraphModule, ...] = (island,)
            self._outer: Callable[..., Any] | None = None
        else:
            self._outer, self.islands = self._assemble(part, settings, common)

    def _assemble(
        self, part: Partition, settings: CaptureSettings, common: dict[str, Any]
    ) -> tuple[Callable[..., Any], tuple[CudaGraphModule, ...]]:
        """Return a function of lane, permission to dispose, and inputs, that runs islands and what is between."""
        disposable = disposable_inputs(part.gm)
        places = _destinations_of_islands(part.gm, self._destinations)
        modules: dict[str, _IslandCall] = {}
        for name in part.islands:
            island = CudaGraphModule(
                part.gm.get_submodule(name),  # type: ignore[arg-type]
                settings,
                destinations=places[name],
                disposable=disposable[name],
                overlaps=True,
                name=f"{self.name} {name}",
                **common,
            )
            modules[name] = _IslandCall(island)
        graph = fx.Graph()
        lane, disposes = graph.placeholder("lane"), graph.placeholder("disposes")
        values: dict[fx.Node, fx.Node] = {}
        for node in part.gm.graph.nodes:
            values[node] = graph.node_copy(node, values.__getitem__)
            if node.op == "call_module" and node.target in modules:
                values[node].args = (lane, disposes, *values[node].args)
        attributes: dict[str, Any] = {
            str(node.target): _attribute(part.gm, str(node.target))
            for node in part.gm.graph.nodes
            if node.op in ("get_attr", "call_module")
        }
        graph.set_codegen(boxed_code_generator())
        outer = fx.GraphModule({**attributes, **modules}, graph, class_name="Captured")
        return outer.forward, tuple(module.island for module in modules.values())

    def __call__(self, *args: Any) -> Any:
        """Run the graph.

        Raises:
            ArgumentCountError: another number of arguments than the graph takes.
            RequiresGradientError: gradients are on and an argument requires one.
            CaptureFailedError: a capture failed and ``strict`` is set.
        """
        return plain_structure(_compat.pytree.tree_unflatten(self.run(list(args)), self._spec))

    def run(self, args: list[Any]) -> list[Any]:
        """Run the graph on a list of inputs, which is emptied, and return the leaves of its output."""
        lanes = self.lanes
        lane = lanes.enter_again(args) if self._continues else lanes.enter()
        if lane is None:
            self._tell(
                "in-flight", "too many steps are between forward and backward; this one runs uncaptured"
            )
            return _compat.pytree.tree_leaves(self._uncaptured(args))
        disposes = not (self._continues and _compat.backward_keeps_graph())
        try:
            if self._outer is None:
                return self.islands[0].run_in(lane, args, disposes=disposes)
            leaves = _compat.pytree.tree_leaves(self._outer([lane, disposes, *_emptied(args)]))
            return self._hand_out(lane, leaves)
        finally:
            lanes.leave(lane)

    def _hand_out(self, lane: Lane, leaves: list[Any]) -> list[Any]:
        """Copy what lies in the lane and goes to the caller."""
        escaping: dict[Block, list[int]] = {}
        for i, leaf in enumerate(leaves):
            if self._destinations[i] == "caller" and isinstance(leaf, torch.Tensor):
                block = lane.block_of(leaf)
                # Memory that is to be handed out must be owned by who holds it.
                if block is not None and (
                    self._settings.outputs == "clone" or block.owner is not block.storage
                ):
                    escaping.setdefault(block, []).append(i)
        for members in escaping.values():
            copies = clone_together([leaves[i] for i in members])()
            for i, copy in zip(members, copies, strict=True):
                leaves[i] = copy
        return leaves

    def _tell(self, code: str, detail: str) -> None:
        if code not in self._told:
            self._told.add(code)
            decision = Decision("capture", self.name, "skip", code, detail)
            log.info("%s", decision)
            if self._decide is not None:
                self._decide(decision)

    def reset(self) -> None:
        """Give the memory back. The next call records anew."""
        self.lanes.reset()

    @property
    def held_bytes(self) -> int:
        """Bytes that the recordings hold: pools, and copies of inputs."""
        return self.lanes.held_bytes

    @property
    def num_graphs(self) -> int:
        """How many recordings there are."""
        return sum(island.num_graphs for island in self.islands)


class _IslandCall(torch.nn.Module):
    """Calls an island from generated code."""

    def __init__(self, island: CudaGraphModule) -> None:
        super().__init__()
        self.island = island

    def forward(self, lane: Lane, disposes: bool, *args: Any) -> list[Any]:
        return self.island.run_in(lane, list(args), disposes=disposes)


def _emptied(args: list[Any]) -> list[Any]:
    inputs = args[:]
    args.clear()
    return inputs


def _destinations_of_islands(
    gm: fx.GraphModule, destinations: Sequence[Destination]
) -> dict[str, list[Destination]]:
    """Return where each output of each island goes.

    What an operation between islands gets, or the caller, it may keep; what only islands and the backward read is
    passed on.
    """
    leaves = _compat.pytree.tree_leaves(gm.graph.output_node().args[0])
    to_caller = {
        leaf
        for leaf, place in zip(leaves, destinations, strict=True)
        if isinstance(leaf, fx.Node) and place == "caller"
    }
    places: dict[str, list[Destination]] = {}
    for node in gm.graph.nodes:
        if node.op != "call_module":
            continue
        elements = {user.args[1]: user for user in node.users if user.target is operator.getitem}
        outputs: list[Destination] = []
        for i in range(len(node.meta["val"])):
            users = elements[i].users if i in elements else ()
            kept = any(user.op not in ("call_module", "output") for user in users)
            outputs.append("held" if kept or elements.get(i) in to_caller else "passed")
        places[str(node.target)] = outputs
    return places


def _attribute(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return module


def apply_cuda_graphs(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any] | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    engine: Engine | None = None,
    is_host: Callable[[torch.Tensor], bool] | None = None,
    decide: Callable[[Decision], None] | None = None,
) -> CapturedGraph:
    """Capture what can be captured of a graph, without `torch.compile`.

    Args:
        gm: A graph of ATen operations, as ``make_fx`` or AOTAutograd make it. Not changed.
        example_inputs: Inputs to find out the sizes of values with; not needed where nodes have ``meta["val"]``.
        options: See `CaptureSettings`.
        engine: Who captures; by default what ``options["capture"]`` says.
        is_host: Tells which tensors lie in host memory, see `partition`.
        decide: Called with each `Decision`: what is refused, and why.

    Returns:
        A function of the graph's inputs, one by one, that returns what the graph returns. It records no gradients.

    Raises:
        UnknownOptionError, InvalidOptionValueError, UnanalysedOperationError: see there.
    """
    settings = parse_settings(CaptureSettings, options, backend="aot_cudagraphs")
    engine = engine if engine is not None else engine_for(settings.capture)
    if example_inputs is not None:
        gm = _with_values(gm, example_inputs)
    part = partition(gm, is_host=is_host)
    return CapturedGraph(
        gm,
        settings,
        part,
        lanes_for(engine, part.device),
        decide=decide,
        engine=engine,
        name="apply_cuda_graphs",
    )


def _with_values(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> fx.GraphModule:
    """Return a copy of a graph whose nodes know what their values look like."""
    graph = fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    copied = fx.GraphModule(gm, graph)
    _compat.propagate_values(copied, example_inputs)
    return copied
