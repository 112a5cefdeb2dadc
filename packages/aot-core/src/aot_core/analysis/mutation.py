"""Which inputs of a graph are written, where, and by which line of the program.

The graph is read once, in order. For every value it is noted which inputs' memory the value may be: a view of
an input is, the sum of two inputs is not. A write to a value is then a write to those inputs::

    %x : placeholder
    %row : aten.select.int(%x, 0, 0)          may be memory of x
    %sum : aten.add.Tensor(%row, 1)           is memory of its own
    %write : aten.copy_.default(%row, %sum)   writes x

What an operator writes and what its results may share memory with is told by its schema, by what torch knows
beyond the schema, and by two short tables of what neither tells.
"""

from __future__ import annotations

import builtins
import dataclasses
import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import torch
from torch import fx

from aot_core import _compat
from aot_core.analysis import subgraphs
from aot_core.errors import UnanalysedOperationError
from aot_core.source import source_line

__all__ = ["InputMutation", "find_input_mutations", "find_written_tensors"]

Kind = Literal["data", "metadata", "storage", "possible"]


@dataclasses.dataclass(frozen=True)
class InputMutation:
    """One write to one input of a graph.

    Args:
        input: The placeholder that is written.
        writer: The node that writes, perhaps one of a subgraph.
        argument: The parameter of the operator through which it writes; empty if not known.
        kind: ``"data"``: values. ``"metadata"``: the input's own sizes or strides (``t_``). ``"storage"``: the
            input is given another storage (``set_``). ``"possible"``: a higher-order operator of which is not
            known what it writes takes the input.
        caller: The node of the analysed graph that calls the subgraph with the writer, or None.
        source: The user's source line, ``"model.py:41"``, where known.
    """

    input: fx.Node
    writer: fx.Node
    argument: str
    kind: Kind
    caller: fx.Node | None = None
    source: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain data, nodes by name."""
        return {
            "input": self.input.name,
            "writer": self.writer.name,
            "operator": str(self.writer.target),
            "argument": self.argument,
            "kind": self.kind,
            "caller": None if self.caller is None else self.caller.name,
            "source": self.source,
        }


def find_input_mutations(graph: fx.Graph | fx.GraphModule) -> tuple[InputMutation, ...]:
    """Return every write to an input of a graph of ATen operations, in the order of execution.

    Follows views, in-place results and lists of tensors, knows writes that schemas hide (the running statistics
    of batch norm, if ``training``), and looks into the subgraphs of higher-order operators. Arithmetic on sizes
    writes nothing. Tensors that the module owns are no inputs. Two inputs that share memory are told apart: a
    write to one is not reported of the other, see `compute_overlapping_inputs` for that.

    Args:
        graph: A graph, or a module with one. Not changed. Node metadata is not needed; where nodes have a
            ``meta["val"]``, operators whose schema leaves open whether they return a view are told by it.

    Raises:
        UnanalysedOperationError: a node calls a method, a module, a Python function or a family of operators
            instead of one operator, so that nothing says what it writes. Names node and source line.
    """
    if isinstance(graph, fx.GraphModule):
        graph = graph.graph
    reader = _Reader(graph.owning_module, caller=None)
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    reader.read(graph, [_of_input(node) for node in inputs])
    return tuple(reader.found)


def find_written_tensors(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Return the tensors that one call of an operator writes, elements of lists included.

    The counterpart of `find_input_mutations` for an operation that is about to run. Knows writes that schemas hide.

    Args:
        op: An operator with its overload, ``torch.ops.aten.native_batch_norm.default``. One without a schema,
            a higher-order one, is taken to write nothing: what it calls is seen by itself.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
    """
    if getattr(op, "_schema", None) is None:
        return []
    values = {
        argument.name: value for argument, value in zip(op._schema.arguments, args, strict=False)
    } | kwargs
    names = _written_names(op, values)
    leaves = _compat.pytree.tree_leaves([value for name, value in values.items() if name in names])
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


@dataclasses.dataclass(frozen=True)
class _Origin:
    """Where a value comes from.

    Args:
        memory: Inputs whose memory it may be, or be part of.
        same: Inputs that it may be itself, so that changing its sizes changes theirs.
        parts: The origins of its elements, if it is a tuple with a known number of them.
    """

    memory: frozenset[fx.Node] = frozenset()
    same: frozenset[fx.Node] = frozenset()
    parts: tuple[_Origin, ...] | None = None


_NEW = _Origin()


def _of_input(node: fx.Node) -> _Origin:
    if "val" in node.meta and not _holds_tensor(node.meta["val"]):
        return _NEW
    return _Origin(frozenset((node,)), frozenset((node,)))


def _holds_tensor(value: Any) -> bool:
    return any(isinstance(leaf, torch.Tensor) for leaf in _compat.pytree.tree_leaves(value))


def _join(origins: Iterable[_Origin]) -> _Origin:
    """Return the origin of a value that may be any of these."""
    origins = list(origins)
    return _Origin(
        frozenset().union(*(origin.memory for origin in origins)),
        frozenset().union(*(origin.same for origin in origins)),
    )


def _view_of(origin: _Origin) -> _Origin:
    return _Origin(origin.memory)


# Writes that neither schema nor torch's own table tells (torch 2.10 to 2.14).
_HIDDEN_WRITES = {
    "aten::batch_norm_update_stats": ("running_mean", "running_var"),
    "aten::batch_norm_gather_stats": ("running_mean", "running_var"),
    "aten::batch_norm_gather_stats_with_counts": ("running_mean", "running_var"),
}

# Operators whose results are views of the first argument though the schema says otherwise: their callers promise
# autograd never to write to them.
_HIDDEN_VIEWS = {
    "aten::_unsafe_view",
    "aten::unsafe_chunk",
    "aten::unsafe_split",
    "aten::unsafe_split_with_sizes",
}

# Operators that return their argument itself if there is nothing to do.
_MAY_RETURN_ARGUMENT = {
    "aten::contiguous",
    "aten::to",
    "aten::type_as",
    "aten::expand_as",
    "aten::resolve_conj",
    "aten::resolve_neg",
    "aten::lift_fresh",
    "aten::reshape",
    "aten::flatten",
}


def _written_names(op: Any, values: dict[str, Any]) -> set[str]:
    """Return the names of the arguments that a call with these values writes."""
    flags = {name: value for name, value in values.items() if isinstance(value, bool)}
    return _compat.written_argument_names(op, flags) | set(_HIDDEN_WRITES.get(op._schema.name, ()))


_SET_STORAGE = {"aten::set_", "aten::set_data"}

_NUMBER_FUNCTIONS = {
    getattr(builtins, name) for name in ("abs", "bool", "float", "int", "max", "min", "pow", "round")
}
_WRITING_OPERATORS = {
    getattr(operator, name)
    for name in dir(operator)
    if name.startswith("i") and name not in ("index", "is_", "inv")
} - {operator.invert, operator.is_not, operator.itemgetter, operator.indexOf} | {
    operator.setitem,
    operator.delitem,
}


class _Reader:
    """Reads one graph. Origins of its inputs are those in the outermost graph, so that is what it reports."""

    def __init__(self, module: Any, caller: fx.Node | None) -> None:
        self.module = module
        self.caller = caller
        self.found: list[InputMutation] = []
        self.origins: dict[fx.Node, _Origin] = {}

    def read(self, graph: fx.Graph, inputs: Sequence[_Origin]) -> _Origin:
        """Note the writes of a graph called with values of these origins; return the origin of its result."""
        given = iter(inputs)
        for node in graph.nodes:
            if node.op == "placeholder":
                self.origins[node] = next(given, _NEW)
            elif node.op == "get_attr":
                self.origins[node] = _NEW
            elif node.op == "output":
                return self._origin_of(node.args[0])
            elif node.op == "call_function":
                self.origins[node] = self._call(node, node.target, node.args, node.kwargs)
            elif node.op == "call_module" and isinstance(self._attribute(node.target), fx.GraphModule):
                operands = [*node.args, *node.kwargs.values()]
                self.origins[node] = self._call_graphs(node, [self._attribute(node.target)], operands)
            else:
                raise _unanalysed(node, f"a {node.op.removeprefix('call_')}, {node.target!r}")
        return _NEW

    # --- one call ------------------------------------------------------------------------------------------

    def _call(self, node: fx.Node, target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> _Origin:
        if _compat.is_operator(target):
            return self._call_operator(node, target, args, kwargs)
        if _compat.is_higher_order(target):
            return self._call_higher_order(node, target, args, kwargs)
        if target is operator.getitem:
            return self._element(args[0], args[1])
        if target in _compat.MODE_NODES or self._is_arithmetic(target, args):
            return _NEW
        if _compat.is_overload_packet(target):
            raise _unanalysed(node, f"{target}, a family of operators; expected one of {target.overloads()}")
        raise _unanalysed(node, f"{getattr(target, '__name__', target)!r}, which has no schema")

    def _call_operator(self, node: fx.Node, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> _Origin:
        schema = op._schema
        values = {
            argument.name: value for argument, value in zip(schema.arguments, args, strict=False)
        } | kwargs
        origins = {name: self._origin_of(value) for name, value in values.items()}
        written = _written_names(op, values)
        for name in (argument.name for argument in schema.arguments if argument.name in written):
            if name in origins:
                self._note_write(node, op, name, origins[name])
        if schema.name in _SET_STORAGE:
            self._share(values.get("self"), [self._origin_of(value) for value in values.values()])
        parts = tuple(self._result(node, op, result, values, origins) for result in schema.returns)
        return parts[0] if len(parts) == 1 else _Origin(_join(parts).memory, parts=parts)

    def _note_write(self, node: fx.Node, op: Any, argument: str, origin: _Origin) -> None:
        kind: Kind = "data"
        inputs = origin.memory
        if op._schema.name in _SET_STORAGE:
            kind, inputs = "storage", origin.same
        elif _compat.changes_metadata(op):
            kind, inputs = "metadata", origin.same
        self._note(node, argument, kind, inputs)

    def _note(self, node: fx.Node, argument: str, kind: Kind, inputs: Iterable[fx.Node]) -> None:
        for written in sorted(inputs):
            self.found.append(
                InputMutation(
                    written, node, argument, kind, self.caller, source_line(node) or self._callers_line()
                )
            )

    def _callers_line(self) -> str | None:
        return None if self.caller is None else source_line(self.caller)

    def _share(self, target: Any, origins: Iterable[_Origin]) -> None:
        # Whatever the tensor was, it may now be memory of what it was set to.
        if isinstance(target, fx.Node):
            before = self.origins[target]
            self.origins[target] = _Origin(before.memory | _join(origins).memory, before.same)

    def _result(
        self, node: fx.Node, op: Any, result: Any, values: dict[str, Any], origins: dict[str, _Origin]
    ) -> _Origin:
        """Return the origin of one result of an operator."""
        name = op._schema.name
        if name in _SET_STORAGE:
            # The tensor itself, whose origin has just been changed.
            return self._origin_of(values.get("self"))
        if result.alias_info is not None:
            joined = _join(
                origins[argument.name]
                for argument in op._schema.arguments
                if argument.name in origins and _may_be_same_memory(result, argument)
            )
            itself = result.alias_info.is_write or name in _MAY_RETURN_ARGUMENT
            return joined if itself else _view_of(joined)
        if name in _HIDDEN_VIEWS:
            return _view_of(origins[op._schema.arguments[0].name])
        if _compat.may_alias_unmarked(op) and values.get("train") is not True:
            # Dropout returns its argument itself when not training.
            return _join(origins.values())
        return _NEW

    def _element(self, value: Any, index: Any) -> _Origin:
        origin = self._origin_of(value)
        if origin.parts is None:
            return origin
        if isinstance(index, int) and -len(origin.parts) <= index < len(origin.parts):
            return origin.parts[index]
        return _join(origin.parts)

    def _is_arithmetic(self, target: Any, args: Sequence[Any]) -> bool:
        module = getattr(target, "__module__", None)
        if target in _WRITING_OPERATORS:
            # In place for tensors, and the same as without "in place" for numbers.
            return not self._origin_of(list(args[:1])).memory
        if module in ("_operator", "operator", "math") or target in vars(math).values():
            return True
        return target in _NUMBER_FUNCTIONS or _compat.is_size_function(target)

    # --- calls of graphs -----------------------------------------------------------------------------------

    def _call_higher_order(
        self, node: fx.Node, op: Any, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> _Origin:
        name = op.name()
        if name in subgraphs.FUNCTIONAL:
            return _NEW
        wrapped = subgraphs.wrapped_operator(name, args, kwargs)
        if wrapped is not None:
            inner, inner_args, inner_kwargs = wrapped
            return _join([self._call(node, inner, inner_args, inner_kwargs)])
        call = subgraphs.called_graphs(name, args, kwargs)
        graphs = [self._graph(value) for value in call.graphs] if call is not None else []
        if call is not None and all(isinstance(graph, fx.GraphModule) for graph in graphs):
            return self._call_graphs(node, graphs, call.operands)
        everything = self._origin_of([*args, *kwargs.values()])
        self._note(node, "", "possible", everything.memory)
        return _Origin(everything.memory)

    def _call_graphs(self, node: fx.Node, graphs: Sequence[Any], operands: Sequence[Any]) -> _Origin:
        inputs = [self._origin_of(operand) for operand in operands]
        results = []
        for graph in graphs:
            reader = _Reader(graph, caller=self.caller or node)
            results.append(reader.read(graph.graph, inputs))
            self.found.extend(reader.found)
        # Any of the graphs may have run.
        sizes = {None if result.parts is None else len(result.parts) for result in results}
        if len(sizes) == 1 and None not in sizes:
            columns = zip(*(result.parts or () for result in results), strict=True)
            parts = tuple(_join(column) for column in columns)
            return _Origin(_join(parts).memory, parts=parts)
        return _join(results)

    def _graph(self, value: Any) -> Any:
        if isinstance(value, fx.Node) and value.op == "get_attr":
            return self._attribute(value.target)
        return value

    def _attribute(self, path: Any) -> Any:
        found = self.module
        for name in str(path).split("."):
            found = getattr(found, name, None)
        return found

    # --- values --------------------------------------------------------------------------------------------

    def _origin_of(self, value: Any) -> _Origin:
        if isinstance(value, fx.Node):
            return self.origins[value]
        if isinstance(value, (list, tuple)):
            parts = tuple(self._origin_of(element) for element in value)
            joined = _join(parts)
            return _Origin(joined.memory, joined.same, parts)
        if isinstance(value, dict):
            return _join(self._origin_of(element) for element in value.values())
        return _NEW


def _may_be_same_memory(result: Any, argument: Any) -> bool:
    """Tell from a schema, ``f(Tensor(a) x) -> Tensor(a)``, whether a result may be memory of an argument."""
    if argument.alias_info is None:
        return False
    letters, others = (info.before_set | info.after_set for info in (result.alias_info, argument.alias_info))
    # Of lists torch tells that there is a letter but not which.
    return not letters or not others or bool(letters & others)


def _unanalysed(node: fx.Node, what: str) -> UnanalysedOperationError:
    where = source_line(node)
    return UnanalysedOperationError(
        f"Node {node.name!r}{f' ({where})' if where else ''} calls {what}. Nothing says which inputs that writes. "
        "Expected operators with a schema, higher-order operators and arithmetic on sizes. Trace the function to "
        "ATen first, with make_fx or AOTAutograd."
    )
