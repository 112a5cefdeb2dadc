"""A joint graph as arrays over the integers: what every later stage reads in place of the graph itself.

AOTAutograd hands a partitioner one graph of a training step::

    joint(primals, tangents) -> (outputs, gradients)

All stages of this package speak of its nodes by position. Dead nodes are left out and duplicates are merged
without touching the graph, so that a node is copied once in all: when the two halves are extracted.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from aot_partition import _compat
from aot_partition._compat import pytree
from aot_partition.duplicates import find_duplicates
from aot_partition.errors import MissingMetadataError

__all__ = ["JointGraph", "SYMBOLIC", "positions"]

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class JointGraph:
    """A joint graph, its dead nodes removed and its duplicates merged, as arrays indexed by node.

    Nothing here changes the graph that it was made of. Positions are topological: a node comes after its
    inputs.

    Attributes:
        module: The graph module that AOTAutograd traced.
        nodes: The nodes by position, without the output node.
        position: The inverse of ``nodes``; a merged duplicate has the position of the node that stays.
        inputs: Positions of the distinct nodes that a node reads, in the order in which it names them.
        users: Positions of the nodes that read a node, in graph order.
        operators: The distinct targets of the nodes.
        operator_of: For each node the index of its target among these.
        metadata: The nodes' ``meta``.
        values: The fake value of each node, None where it has none.
        num_fwd_outputs: How many leading outputs belong to the forward.
        outputs: What the graph returns: nodes, or constants such as None.
        descriptions: AOTAutograd's description of each output, or None.
        forward_results: Positions of the nodes among the forward's outputs.
        backward_results: Positions of the nodes among the backward's outputs.
        primals: Positions of the inputs of the forward.
        tangents: Positions of the gradients of the forward's outputs.
        forward_seeds: Positions of the forward's RNG inputs.
        backward_seeds: Positions of the backward's RNG inputs.
        backward_states: Positions of the primals that carry what the backward's hooks need.
        static: Positions of the primals that stay at one address, as parameters do.
        in_forward: 1 where the forward's outputs, or an effect of the forward, need the node.
        in_tangent_closure: 1 where the node can only be computed by the backward.
        required_backward: 1 for those, and for what the backward returns.
        reachable_in_forward: 1 where the node can be computed from primals alone.
        from_backward: 1 where eager PyTorch would have run the node in its backward.
        pinned_to_forward: 1 where the node writes something, or is tagged, and must run in the forward.
        pinned_to_backward: The same for the backward.
        impure: 1 where the node has an effect besides its result; drawing random numbers is one.
        policy: What the user's checkpointing asks of a node: a ``CheckpointPolicy``, or None.
    """

    def __init__(
        self,
        module: fx.GraphModule,
        *,
        num_fwd_outputs: int,
        static_lifetime_input_indices: Iterable[int] | None = None,
        merge_duplicates: bool = True,
    ) -> None:
        """Read a graph.

        Args:
            module: Joint graph. Not changed.
            num_fwd_outputs: How many leading outputs belong to the forward.
            static_lifetime_input_indices: Which primals, by number, stay at one address.
            merge_duplicates: Treat nodes that compute the same as one.

        Raises:
            MissingMetadataError: a node has no ``meta["val"]``.
        """
        self.module = module
        self.num_fwd_outputs = num_fwd_outputs
        alive, read_by, output = _without_dead_nodes(module.graph)
        self.twins = find_duplicates(alive, read_by, output) if merge_duplicates else {}
        twins = self.twins
        self.nodes: list[fx.Node] = [node for node in alive if node not in twins] if twins else alive
        self.position: dict[fx.Node, int] = {node: i for i, node in enumerate(self.nodes)}
        for node, kept in twins.items():
            self.position[node] = self.position[kept]
        self.output_node = output
        position = self.position
        self.inputs: list[list[int]] = []
        self.users: list[list[int]] = [[] for _ in self.nodes]
        users = self.users
        for node, arguments in zip(alive, read_by, strict=True):
            if node in twins:
                continue
            reads = [position[argument] for argument in arguments]
            if len(reads) > 1 and twins:
                reads = list(dict.fromkeys(reads))
            i = len(self.inputs)
            self.inputs.append(reads)
            for j in reads:
                users[j].append(i)
        self._sizes: dict[int, int] = {}
        self._number_operators()
        self._read_metadata()
        self._read_signature(static_lifetime_input_indices or ())
        self._check_metadata()
        self._find_sides()

    def __len__(self) -> int:
        return len(self.nodes)

    # --- what the constructor reads --------------------------------------------------------------------

    def _number_operators(self) -> None:
        # By address: operators of torch hash in Python. The graph keeps them alive.
        number: dict[int, int] = {}
        self.operators: list[Any] = []
        self.operator_of: list[int] = []
        for node in self.nodes:
            target = node.target
            index = number.setdefault(id(target), len(number))
            if index == len(self.operators):
                self.operators.append(target)
            self.operator_of.append(index)

    def _read_metadata(self) -> None:
        """Take from the nodes what is looked at again and again, in one go: they are spread over the memory."""
        self.metadata: list[dict[str, Any]] = []
        self.values: list[Any] = []
        self.policy: list[CheckpointPolicy | None] = []
        self._sides: list[str | None] = []
        for node in self.nodes:
            meta = node.meta
            self.metadata.append(meta)
            self.values.append(meta.get("val"))
            self.policy.append(meta.get("recompute"))
            self._sides.append(meta.get("partitioner_tag"))

    def _read_signature(self, static: Iterable[int]) -> None:
        self.outputs: list[Any] = pytree.arg_tree_leaves(*self.output_node.args)
        count = len(self.outputs)
        self.descriptions: list[Any] = pytree.arg_tree_leaves(
            self.output_node.meta.get("desc", [None] * count)
        )
        if len(self.descriptions) != count:
            self.descriptions = [None] * count
        of = self.position
        cut = self.num_fwd_outputs
        self.forward_results = [of[x] for x in self.outputs[:cut] if isinstance(x, fx.Node)]
        self.backward_results = [of[x] for x in self.outputs[cut:] if isinstance(x, fx.Node)]
        self.primals: list[int] = []
        self.tangents: list[int] = []
        self.forward_seeds: list[int] = []
        self.backward_seeds: list[int] = []
        self.backward_states: list[int] = []
        for i, node in enumerate(self.nodes):
            if node.op != "placeholder":
                continue
            name = str(node.target)
            if "tangents" in name:
                self.tangents.append(i)
            elif "bwd_seed" in name or "bwd_base_offset" in name:
                self.backward_seeds.append(i)
            elif "fwd_seed" in name or "fwd_base_offset" in name:
                self.forward_seeds.append(i)
            else:
                self.primals.append(i)
                if _compat.is_backward_state(self.values[i]):
                    self.backward_states.append(i)
        wanted = set(static)
        self.static = frozenset(p for number, p in enumerate(self.primals) if number in wanted)

    def _check_metadata(self) -> None:
        for i, value in enumerate(self.values):
            if value is not None:
                continue
            node = self.nodes[i]
            if "val" in node.meta or node.op == "get_attr" or _compat.returns_nothing(node.target):
                continue
            # The parts of a value of several are described one by one, and an unused value not at all.
            if node.op == "call_function" and all(
                self.nodes[user].target is operator.getitem for user in self.users[i]
            ):
                continue
            raise MissingMetadataError(
                f"Node {node.name!r} ({node.target}) of the joint graph has no meta['val']; a partition needs "
                "the size of every value. Trace the graph with fake tensors, as AOTAutograd does."
            )

    def _find_sides(self) -> None:
        count = len(self.nodes)
        nodes, inputs, users = self.nodes, self.inputs, self.users
        self.pinned_to_forward = to_forward = bytearray(count)
        self.pinned_to_backward = to_backward = bytearray(count)
        self.impure = bytearray(count)
        self.from_backward = from_backward = bytearray(count)
        # Whether an overload is impure is asked of its first node; other targets may answer by their arguments.
        purity: list[bool | None] = [None] * len(self.operators)
        for i, (node, operator_) in enumerate(zip(nodes, self.operator_of, strict=True)):
            if node.op != "call_function":
                continue
            impure = purity[operator_]
            if impure is None:
                impure = node.is_impure()
                if _compat.is_overload(node.target):
                    purity[operator_] = impure
            tag = self._sides[i]
            if tag == "is_backward":
                from_backward[i] = 1
                if self.is_higher_order[i] and _compat.has_effect(node):
                    to_backward[i] = 1
            elif tag == "must_be_in_backward":
                from_backward[i] = to_backward[i] = 1
            elif tag == "must_be_in_forward":
                to_forward[i] = 1
            if impure:
                self.impure[i] = 1
                if self.writes[i] and tag not in ("must_be_in_backward", "must_be_in_forward"):
                    (to_backward if tag == "is_backward" else to_forward)[i] = 1

        closure = bytearray(count)
        for i in self.tangents:
            closure[i] = 1
        for i in range(count):
            if closure[i] or self.pinned_to_backward[i]:
                closure[i] = 1
                for user in users[i]:
                    closure[user] = 1
        self.in_tangent_closure = closure

        self.required_backward = bytearray(closure)
        for i in self.backward_results:
            self.required_backward[i] = 1

        reachable = bytearray(count)
        for i in (*self.primals, *self.forward_seeds):
            reachable[i] = 1
        for i, node in enumerate(nodes):
            if node.op == "call_function":
                reachable[i] = not to_backward[i] and 0 not in [reachable[j] for j in inputs[i]]
            elif node.op == "get_attr":
                reachable[i] = 1
        self.reachable_in_forward = reachable

        forward = bytearray(count)
        for i in (*self.primals, *self.forward_seeds, *self.forward_results):
            forward[i] = 1
        for i in reversed(range(count)):
            # An effect of the backward, a random number drawn there included, stays there.
            effect = self.impure[i] and (not self.from_backward[i] or self.pinned_to_forward[i])
            if reachable[i] and (forward[i] or effect):
                forward[i] = 1
                for j in inputs[i]:
                    forward[j] = 1
        self.in_forward = bytearray(map(operator.and_, forward, reachable))

    # --- what is computed when asked for ----------------------------------------------------------------

    @functools.cached_property
    def twins_of(self) -> dict[int, list[fx.Node]]:
        """For a node that stays, the merged nodes that it stands for."""
        found: dict[int, list[fx.Node]] = {}
        for twin in self.twins:
            found.setdefault(self.position[twin], []).append(twin)
        return found

    @functools.cached_property
    def merged_storages(self) -> dict[int, dict[int, int]]:
        """For what may lie in the memory of a merged duplicate: its storages, each with that of the node that stays.

        Fake tensors tell memory apart as it was in the trace, where the duplicate was computed::

            a = sigmoid(x); b = sigmoid(x); c = detach(b)      b is merged into a, and c lies where a does
        """
        found: dict[int, dict[int, int]] = {}
        if not self.twins:
            return found
        may_alias = self.where_operator(_compat.may_alias)
        for twin in self.twins:
            for user in twin.users:
                if user in self.position and user not in self.twins and may_alias[self.position[user]]:
                    pairs = zip(
                        _storage_keys(twin.meta.get("val")),
                        _storage_keys(self.values[self.position[twin]]),
                        strict=True,
                    )
                    found.setdefault(self.position[user], {}).update(pairs)
        return found

    def value(self, i: int) -> Any:
        """Return the fake value of a node, or None if it has no value."""
        return self.values[i]

    def size(self, i: int) -> int:
        """Return the bytes of a node's value, an alias counted like a value of its own; a symbolic number is 1."""
        size = self._sizes.get(i)
        if size is None:
            size = self._sizes[i] = _bytes_of(self.values[i])
        return size

    @functools.cached_property
    def storages(self) -> list[tuple[int, ...]]:
        """The storages that a node's value lies in, as keys into ``storage_bytes``."""
        self._number_storages()
        return self._storages

    @functools.cached_property
    def storage_bytes(self) -> list[int]:
        """Size of each storage, in bytes."""
        self._number_storages()
        return self._storage_bytes

    @functools.cached_property
    def is_alias(self) -> bytearray:
        """1 where a node makes no storage of its own: a view, a detach, a part of a tuple, a number."""
        alias = bytearray(len(self))
        for i, keys in enumerate(self.storages):
            read = {key for j in self.inputs[i] for key in self.storages[j]}
            alias[i] = self.nodes[i].op == "call_function" and read.issuperset(keys)
        return alias

    def _number_storages(self) -> None:
        number: dict[int, int] = {}
        self._storages: list[tuple[int, ...]] = []
        self._storage_bytes: list[int] = []
        for i, value in enumerate(self.values):
            keys = []
            merged = self.merged_storages.get(i, {})
            for tensor in _tensors_in(value):
                storage = _compat.storage_of(tensor)
                if storage is None:
                    continue
                key = number.get(storage[0])
                if key is None and storage[0] in merged:
                    key = number[storage[0]] = number[merged[storage[0]]]
                if key is None:
                    key = number[storage[0]] = len(self._storage_bytes)
                    self._storage_bytes.append(_compat.size_hint(storage[1]))
                keys.append(key)
            self._storages.append(tuple(dict.fromkeys(keys)))

    def by_operator(self, classify: Callable[[Any], int]) -> bytearray:
        """Return for each node a number below 256 that its target stands for. Each target is asked once."""
        classes = [classify(target) for target in self.operators]
        return bytearray(map(classes.__getitem__, self.operator_of))

    def where_operator(self, is_such: Callable[[Any], bool]) -> bytearray:
        """Return 1 for each node whose target is such."""
        return self.by_operator(lambda target: bool(is_such(target)))

    @functools.cached_property
    def is_part(self) -> bytearray:
        """1 where a node takes a value of several apart."""
        return self.where_operator(lambda target: target is operator.getitem)

    @functools.cached_property
    def writes(self) -> bytearray:
        """1 where a node calls an operator that writes to an argument."""
        return self.where_operator(_compat.is_mutable_schema)

    @functools.cached_property
    def is_random(self) -> bytearray:
        """1 where a node draws random numbers. Attention without dropout does not, whatever its tag says."""
        seeded = torch.Tag.nondeterministic_seeded
        found = self.where_operator(lambda target: seeded in getattr(target, "tags", ()))
        for i in positions(found):
            found[i] = _compat.argument_of(self.nodes[i], "dropout_p", default=1) != 0
        return found

    @functools.cached_property
    def is_written(self) -> bytearray:
        """1 where the forward, or AOTAutograd right after it, overwrites a node's memory.

        Then the backward finds another value there than the forward saw.
        """
        found = bytearray(len(self))
        mutated = {
            description.mutated_input
            for description in self.descriptions[: self.num_fwd_outputs]
            if hasattr(description, "mutated_input")
        }
        roots = [i for i in self.primals if mutated and self.nodes[i].meta.get("desc") in mutated]
        for i, node in enumerate(self.nodes):
            if self.pinned_to_forward[i] and self.writes[i]:
                roots += [self.position[argument] for argument in _compat.written_arguments(node)]
        if roots:
            keys = {key for i in roots for key in self.storages[i]}
            for i, storages in enumerate(self.storages):
                found[i] = not self.in_tangent_closure[i] and not keys.isdisjoint(storages)
        return found

    @functools.cached_property
    def reads_written(self) -> bytearray:
        """1 where a node of the forward reads memory that is overwritten later: it can't be computed again."""
        written = self.is_written
        found = bytearray(len(self))
        if any(written):
            for i, node in enumerate(self.nodes):
                found[i] = (
                    node.op == "call_function"
                    and self.in_forward[i]
                    and not written[i]
                    and any(written[j] for j in self.inputs[i] if j not in self.statistics.get(i, ()))
                )
        return found

    @functools.cached_property
    def statistics(self) -> dict[int, frozenset[int]]:
        """For a batch norm in training, the inputs that it reads only to return them updated.

        Its result does not depend on them, so that it can be computed again with anything in their place.
        """
        aten = torch.ops.aten
        norms = (
            aten._native_batch_norm_legit_functional.default,
            aten._batch_norm_with_update_functional.default,
        )
        found = {}
        for i in positions(self.where_operator(lambda target: target in norms)):
            node = self.nodes[i]
            if _compat.argument_of(node, "training", default=True):
                names = ("running_mean", "running_var")
                given = [_compat.argument_of(node, name, default=None) for name in names]
                found[i] = frozenset(self.position[x] for x in given if isinstance(x, fx.Node))
        return found

    @functools.cached_property
    def is_symbolic(self) -> bytearray:
        """1 where a node's value is a symbolic number."""
        return bytearray(isinstance(value, SYMBOLIC) for value in self.values)

    @functools.cached_property
    def is_opaque(self) -> bytearray:
        """1 where a node's value is neither tensor nor number, and yet can be passed to the backward."""
        return bytearray(
            not isinstance(value, (torch.Tensor, tuple, list, *SYMBOLIC)) and _compat.is_opaque(node)
            for node, value in zip(self.nodes, self.values, strict=True)
        )

    @functools.cached_property
    def is_collective(self) -> bytearray:
        """1 where a node communicates with other ranks."""
        spaces = ("_c10d_functional", "c10d_functional")
        return self.where_operator(lambda target: getattr(target, "namespace", None) in spaces)

    @functools.cached_property
    def is_higher_order(self) -> bytearray:
        """1 where a node calls an operator that calls graphs or other operators."""
        return self.where_operator(_compat.is_higher_order)


def positions(marks: bytearray) -> Iterator[int]:
    """Yield where an array of zeros and ones has ones."""
    i = marks.find(1)
    while i >= 0:
        yield i
        i = marks.find(1, i + 1)


def _without_dead_nodes(graph: fx.Graph) -> tuple[list[fx.Node], list[list[fx.Node]], fx.Node]:
    """Return the nodes that something needs, what each of them reads, and the output node."""
    nodes = list(graph.nodes)
    output = nodes.pop()
    needed = set(output.all_input_nodes)
    alive, read_by = [], []
    for node in reversed(nodes):
        if node in needed or node.op == "placeholder" or node.is_impure():
            arguments = node.all_input_nodes
            alive.append(node)
            read_by.append(arguments)
            needed.update(arguments)
    return alive[::-1], read_by[::-1], output


def _tensors_in(value: Any) -> Sequence[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return (value,)
    if isinstance(value, (tuple, list)):
        return [tensor for part in value for tensor in _tensors_in(part)]
    if isinstance(value, dict):
        return [tensor for part in value.values() for tensor in _tensors_in(part)]
    return ()


def _storage_keys(value: Any) -> list[int]:
    storages = map(_compat.storage_of, _tensors_in(value))
    return [storage[0] for storage in storages if storage is not None]


def _bytes_of(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return _compat.size_hint(value.numel()) * value.dtype.itemsize
    if isinstance(value, SYMBOLIC):
        return 1
    return sum(_compat.size_hint(t.numel()) * t.dtype.itemsize for t in _tensors_in(value))
