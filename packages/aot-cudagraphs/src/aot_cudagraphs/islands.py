"""Which parts of a graph are captured: islands of what a capture takes, around what it refuses.

Before::

    def forward(x, w, mask):
        a = aten.mm(x, w)
        b = aten.relu(a)
        n = aten.nonzero(b)                 # its size is read from the device
        c = aten.mul(b, 2)
        return aten.sum(c), n

After::

    def forward(x, w, mask):
        b = island_0(x, w)                  # mm, relu
        n = aten.nonzero(b)
        s = island_1(b)                     # mul, sum
        return s, n

The order of operations is kept, so that writes and random numbers stay where they were. A number on the host, a
0-dim CPU tensor, would be frozen into a graph; where that changes no bit of the result, it is moved to the device
before the island instead.
"""

from __future__ import annotations

import collections
import dataclasses
import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx

from aot_core import source_line
from aot_core.analysis import find_input_mutations
from aot_cudagraphs import _compat
from aot_cudagraphs._compat import pytree
from aot_cudagraphs.refusals import Refusal, on_cpu, refusal_of_node

__all__ = ["Partition", "RefusedNode", "partition"]


@dataclasses.dataclass(frozen=True)
class RefusedNode:
    """An operation that stays outside the islands.

    Args:
        node: Its name in the graph.
        refusal: What it is and why.
        source: The user's source line, where known.
    """

    node: str
    refusal: Refusal
    source: str | None


@dataclasses.dataclass(frozen=True)
class Partition:
    """A graph, cut.

    Args:
        gm: The graph with a ``call_module`` for each island.
        islands: Names of the islands' submodules, in order of execution.
        refused: The operations outside, in order.
        moved: Names of host scalars that are moved to the device before an island.
        captured: Operations inside islands.
        operations: All operations of the graph that was cut.
        device: What is captured.
    """

    gm: fx.GraphModule
    islands: tuple[str, ...]
    refused: tuple[RefusedNode, ...]
    moved: tuple[str, ...]
    captured: int
    operations: int
    device: torch.device

    @property
    def whole(self) -> bool:
        """Tell whether the graph is one island."""
        return len(self.islands) == 1 and self.captured == self.operations and not self.moved

    @property
    def share(self) -> float:
        """Captured operations over those that are not refused; 1 is all."""
        capturable = self.operations - len(self.refused)
        return self.captured / capturable if capturable else 1.0


def partition(
    gm: fx.GraphModule,
    *,
    device: torch.device | None = None,
    is_host: Callable[[torch.Tensor], bool] | None = None,
) -> Partition:
    """Cut a graph of ATen operations into islands that can be captured.

    Args:
        gm: Graph whose nodes carry ``meta["val"]``. Not changed.
        device: What to capture; by default, the device other than the CPU that most operations are on, or the CPU
            if there is none.
        is_host: Tells whether a (fake) tensor lies in the host's memory; by default, a CPU tensor of a graph for
            another device does.

    Returns:
        The graph with its islands as submodules, and what stayed outside.
    """
    device = _main_device(gm.graph) if device is None else device
    classifier = _Classifier(gm.graph, device, is_host or (on_cpu if device.type != "cpu" else _nowhere))
    return _Cut(gm, classifier, device).partition()


def _main_device(graph: fx.Graph) -> torch.device:
    counts = collections.Counter(
        tensor.device for node in graph.nodes if node.op == "call_function" for tensor in _tensors(node)
    )
    for found, _ in counts.most_common():
        if found.type != "cpu":
            return found
    inputs = [tensor.device for node in graph.nodes for tensor in _tensors(node)]
    return next((found for found in inputs if found.type != "cpu"), torch.device("cpu"))


def _tensors(node: fx.Node) -> list[torch.Tensor]:
    leaves = pytree.tree_leaves(node.meta.get("val"))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _nowhere(tensor: torch.Tensor) -> bool:
    return False


# Operations that give the same bits for a 0-dim operand wherever it lies. On a CUDA device, division by a host
# scalar multiplies by its reciprocal, and pow has kernels for particular exponents: these are not here.
_SAME_FOR_DEVICE_SCALAR = frozenset(
    {
        "aten::add.Tensor",
        "aten::sub.Tensor",
        "aten::mul.Tensor",
        "aten::eq.Tensor",
        "aten::ne.Tensor",
        "aten::lt.Tensor",
        "aten::le.Tensor",
        "aten::gt.Tensor",
        "aten::ge.Tensor",
        "aten::maximum",
        "aten::minimum",
        "aten::where.self",
        "aten::fill.Tensor",
        "aten::copy",
        "aten::copy_",
        "aten::add_.Tensor",
        "aten::sub_.Tensor",
        "aten::mul_.Tensor",
        "aten::fill_.Tensor",
    }
)
_LOW_PRECISION = (torch.float16, torch.bfloat16)


class _Classifier:
    """Tells for each node of a graph whether an island may hold it."""

    def __init__(
        self, graph: fx.Graph, device: torch.device, is_host: Callable[[torch.Tensor], bool]
    ) -> None:
        self._device = device
        self._is_host = is_host
        # Sizes, strides or storage of an input are the caller's to see, and no replay changes them.
        self._reshaping = {
            write.caller or write.writer for write in find_input_mutations(graph) if write.kind != "data"
        }

    def refusal(self, node: fx.Node) -> Refusal | None:
        """Return why a ``call_function`` node must stay outside, or None."""
        if node in self._reshaping:
            return _refuse(
                node,
                "input-metadata",
                "it changes sizes, strides or storage of an input",
                "Write to the input's elements instead.",
            )
        refusal = refusal_of_node(node, is_host=self._is_host)
        tensors = (tensor for one in (node, *node.all_input_nodes) for tensor in _tensors(one))
        if refusal is None and any(map(_compat.has_unbacked_size, tensors)):
            refusal = _refuse(
                node,
                "data-dependent-size",
                "it works on sizes that depend on data, each of which would need a graph of its own",
                "Pad to a fixed size.",
            )
        return refusal or self._refusal_for_devices(node)

    def is_scalar(self, node: fx.Node) -> bool:
        """Tell whether a node's value is a 0-dim tensor on the host."""
        value = node.meta.get("val")
        return isinstance(value, torch.Tensor) and value.dim() == 0 and self._is_host(value)

    def _refusal_for_devices(self, node: fx.Node) -> Refusal | None:
        operands = node.all_input_nodes
        if any(map(self.is_scalar, operands)) and not self._same_for_device_scalar(node):
            return _refuse(
                node,
                "host-scalar",
                "it computes with a 0-dim tensor of the host, and gives other bits with one of the device",
                "Make that tensor on the device, or pass a Python number.",
            )
        tensors = (tensor for one in (node, *operands) for tensor in _tensors(one))
        others = {str(one.device) for one in tensors if not self._is_host(one) and one.device != self._device}
        if others:
            return _refuse(
                node,
                "other-device",
                f"it uses {', '.join(sorted(others))}, and this graph is captured on {self._device}",
                "Keep a graph on one device.",
            )
        return None

    def _same_for_device_scalar(self, node: fx.Node) -> bool:
        name = getattr(node.target, "_name", None)
        if name not in _SAME_FOR_DEVICE_SCALAR:
            return False
        return not any(tensor.dtype in _LOW_PRECISION for tensor in _tensors(node))


def _refuse(node: fx.Node, code: str, reason: str, remedy: str) -> Refusal:
    return Refusal(str(node.target), code, reason, remedy)


class _Cut:
    """Builds the outer graph and the islands."""

    def __init__(self, gm: fx.GraphModule, classifier: _Classifier, device: torch.device) -> None:
        self._gm = gm
        self._classifier = classifier
        self._device = device
        self._refused: list[RefusedNode] = []
        self._outer = fx.Graph()
        self._values: dict[fx.Node, fx.Node] = {}
        self._moved: dict[fx.Node, fx.Node] = {}
        self._modules: dict[str, fx.GraphModule] = {}
        self._captured = 0

    def partition(self) -> Partition:
        run: list[fx.Node] = []
        for node in self._gm.graph.nodes:
            if node.op == "call_function" and self._joins(node, run):
                run.append(node)
            elif node.op in ("placeholder", "get_attr"):
                self._keep_outside(node)
            else:
                self._close(run)
                run = []
                self._keep_outside(node)
        gm = fx.GraphModule(self._attributes(), self._outer, class_name="Partitioned")
        operations = sum(node.op == "call_function" for node in self._gm.graph.nodes)
        return Partition(
            gm,
            tuple(self._modules),
            tuple(self._refused),
            tuple(node.name for node in self._moved),
            self._captured,
            operations,
            self._device,
        )

    def _joins(self, node: fx.Node, run: list[fx.Node]) -> bool:
        inside = set(run)
        if any(isinstance(operand.meta.get("val"), (tuple, list)) for operand in node.all_input_nodes):
            # A tuple does not cross the shore: its elements are taken where it was made.
            return all(operand in inside for operand in node.all_input_nodes)
        refusal = self._classifier.refusal(node)
        if refusal is not None:
            self._refused.append(RefusedNode(node.name, refusal, source_line(node)))
        return refusal is None

    def _close(self, run: list[fx.Node]) -> None:
        """Make an island of consecutive nodes; of nothing but views, none."""
        if not any(launches_work(node) for node in run):
            for node in run:
                self._keep_outside(node)
            return
        inside = set(run)
        graph = fx.Graph()
        taken = list(dict.fromkeys(operand for node in run for operand in node.all_input_nodes))
        taken = [operand for operand in taken if operand not in inside]
        given = [node for node in run if any(user not in inside for user in node.users)]
        inner: dict[fx.Node, fx.Node] = {}
        arguments = []
        subgraphs: dict[str, Any] = {}
        for operand in taken:
            if operand.op == "get_attr" and isinstance(self._attribute(operand), fx.GraphModule):
                # What a higher-order operator calls.
                subgraphs[str(operand.target)] = self._attribute(operand)
                inner[operand] = graph.node_copy(operand)
                continue
            inner[operand] = graph.placeholder(operand.name)
            inner[operand].meta = dict(operand.meta)
            scalar = self._classifier.is_scalar(operand)
            arguments.append(self._to_device(operand) if scalar else self._values[operand])
        for node in run:
            inner[node] = graph.node_copy(node, inner.__getitem__)
        graph.output([inner[node] for node in given])
        name = f"island_{len(self._modules)}"
        self._modules[name] = fx.GraphModule(subgraphs, graph, class_name=name)
        self._captured += len(run)
        call = self._outer.call_module(name, tuple(arguments))
        call.meta["val"] = [node.meta.get("val") for node in given]
        for i, node in enumerate(given):
            self._values[node] = self._outer.call_function(operator.getitem, (call, i))
            self._values[node].meta = dict(node.meta)

    def _to_device(self, scalar: fx.Node) -> fx.Node:
        if scalar not in self._moved:
            value = self._values[scalar]
            moved = self._outer.call_function(_compat.COPY_TO_DEVICE, (value,), {"device": self._device})
            moved.meta = {key: entry for key, entry in scalar.meta.items() if key != "val"}
            self._moved[scalar] = moved
        return self._moved[scalar]

    def _keep_outside(self, node: fx.Node) -> None:
        self._values[node] = self._outer.node_copy(node, self._values.__getitem__)

    def _attributes(self) -> dict[str, Any]:
        found: dict[str, Any] = dict(self._modules)
        for node in self._outer.nodes:
            if node.op == "get_attr" or (node.op == "call_module" and node.target not in found):
                found[str(node.target)] = self._attribute(node)
        return found

    def _attribute(self, node: fx.Node) -> Any:
        value: Any = self._gm
        for name in str(node.target).split("."):
            value = getattr(value, name)
        return value


def launches_work(node: fx.Node) -> bool:
    """Tell whether an operation gives the device something to do: views and sizes don't."""
    if not _compat.is_operator(node.target):
        return False
    schema: Any = node.target._schema  # type: ignore[union-attr]
    if any(argument.alias_info is not None and argument.alias_info.is_write for argument in schema.arguments):
        return True
    if not _returns_tensors(schema.returns):
        return False
    return any(result.alias_info is None for result in schema.returns) and schema.name not in _VIEWS_UNMARKED


_VIEWS_UNMARKED = ("aten::_unsafe_view", "aten::sym_size", "aten::sym_stride", "aten::sym_numel")


def _returns_tensors(returns: Iterable[Any]) -> bool:
    return any("Tensor" in str(result.type) for result in returns)
