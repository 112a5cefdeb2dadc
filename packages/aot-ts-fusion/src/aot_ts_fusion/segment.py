"""A TorchScript graph in the making, from nodes of an FX graph.

::

    def forward(x, w):                       graph(%tensors : Tensor[]):
        y = aten.mm.default(x, w)              %x, %w = prim::ListUnpack(%tensors)
        z = aten.add.Tensor(y, 1)       →       = aten::clear(%tensors)
        return z                               %y = aten::mm(%x, %w)
                                               %z = aten::add(%y, 1, 1)
                                               return ((%z))

Each node becomes one TorchScript operator, whose overload TorchScript chooses by the types of the arguments. It is
compared with the one that was traced: a node for which another would run is an `Obstacle`.

Tensors come in one list, which the graph empties when it has unpacked it. So nobody but the graph holds them while it
runs, and each is freed after its last use.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from aot_ts_fusion import _compat
from aot_ts_fusion._compat import BOOL, COMPLEX, FLOAT, INT, NUMBER, TENSOR, IRGraph, IRType, IRValue
from aot_ts_fusion.number_ops import NUMBER_OPS, TENSOR_NUMBERS, number_operands
from aot_ts_fusion.obstacle import Obstacle

__all__ = ["Segment", "type_of"]

_MEMORY_FORMATS = {
    torch.contiguous_format: 0,
    torch.preserve_format: 1,
    torch.channels_last: 2,
    torch.channels_last_3d: 3,
}
_CASTS = {
    ("FloatType", "IntType"): ("aten::Float", FLOAT),
    ("FloatType", "NumberType"): ("aten::Float", FLOAT),
    ("IntType", "NumberType"): ("aten::Int", INT),
    ("IntType", "BoolType"): ("aten::Int", INT),
    ("BoolType", "IntType"): ("aten::Bool", BOOL),
    # No aten::Bool takes a Scalar. A Scalar that stands for a bool holds one: it was read from a tensor of bools.
    ("BoolType", "NumberType"): ("prim::unchecked_cast", BOOL),
    # TorchScript takes no bool for a Scalar, though its operators do.
    ("NumberType", "BoolType"): ("prim::unchecked_cast", NUMBER),
    ("TensorType", "BoolType"): ("prim::unchecked_cast", NUMBER),
}


def type_of(value: Any) -> IRType | None:
    """Return the TorchScript type of a value of a traced graph, or None if it has none here."""
    if isinstance(value, torch.Tensor):
        return TENSOR
    for python, symbolic, found in (
        (bool, torch.SymBool, BOOL),
        (int, torch.SymInt, INT),
        (float, torch.SymFloat, FLOAT),
        (complex, complex, COMPLEX),
    ):
        if isinstance(value, (python, symbolic)):
            return found
    return None


class Segment:
    """Consecutive nodes of an FX graph that become one TorchScript function.

    Args:
        types: TorchScript type of each value that exists already, by node. What the segment makes is added.
        optimized: Whether TorchScript will optimize the graph.

    Attributes:
        graph: The TorchScript graph.
        nodes: The nodes that are in it.
        literals: Values that are passed in each call, though they never change.
    """

    def __init__(self, types: dict[fx.Node, IRType], *, optimized: bool) -> None:
        self.graph: IRGraph = _compat.new_graph()
        self.nodes: dict[fx.Node, None] = {}
        self.literals: list[Any] = []
        self._types = types
        self._optimized = optimized
        self._values: dict[fx.Node, IRValue | tuple[IRValue, ...]] = {}
        self._inputs: list[fx.Node] = []
        self._literal_inputs: list[IRValue] = []
        self._constants: dict[Any, IRValue] = {}
        self._keep_live = False

    # --- nodes ---------------------------------------------------------------------------------------------

    def lower(self, node: fx.Node) -> None:
        """Append a node.

        Raises:
            Obstacle: it can't be expressed. The segment is as it was, but for values that nothing uses.
        """
        self._keep_live = self._optimized and not node.all_input_nodes
        target: Any = node.target
        if node.op != "call_function":
            raise Obstacle("not-an-operator", f"TorchScript has no {node.op} of an FX graph")
        if target is operator.getitem:
            value = self._element(node)
        elif target in TENSOR_NUMBERS:
            value = self._emit(TENSOR_NUMBERS[target], [self._argument(each) for each in node.args], INT)
        elif _compat.is_operator(target):
            value = self._operator(node)
        elif target in NUMBER_OPS:
            value = self._number(node)
        else:
            if _compat.is_higher_order(target):
                raise Obstacle(
                    "higher-order", "TorchScript has no operators that call graphs, or order effects"
                )
            raise Obstacle("not-an-operator", "it is a Python function, not an operator")
        self._values[node] = value
        self.nodes[node] = None
        if not isinstance(value, tuple):
            self._types[node] = value.type()

    def _operator(self, node: fx.Node) -> IRValue | tuple[IRValue, ...]:
        signature = _compat.signature(node.target)
        if not signature.returns:
            raise Obstacle("effect", "it returns nothing, so that TorchScript would drop it")
        if not (node.users or signature.writes or signature.views):
            raise Obstacle("effect", "nothing reads its result, so that TorchScript would drop it")
        if len(signature.returns) > 1 and any(user.target is not operator.getitem for user in node.users):
            raise Obstacle("structure", "its results are read as a whole")
        arguments, numbers = [], []
        for place, argument in enumerate(signature.arguments):
            if place < len(node.args):
                given = node.args[place]
            elif argument.name in node.kwargs:
                given = node.kwargs[argument.name]
            elif argument.has_default:
                given = argument.default
            else:
                raise Obstacle("missing-argument", f"its argument {argument.name!r} is missing")
            value = self._argument(given, argument.type)
            if argument.type.kind() == "TensorType" and value.type().kind() != "TensorType":
                numbers.append(argument.name)
            arguments.append(value)
        operation = self.graph.create(signature.name, arguments, len(signature.returns))
        self.graph.insertNode(operation)
        found = _compat.comparable(operation.schema())
        if found != signature.text and not _takes_numbers(found, signature.text, numbers):
            operation.destroy()
            raise Obstacle(
                "other-overload", f"for these arguments TorchScript has {found}, not {signature.text}"
            )
        for output, kind in zip(operation.outputs(), signature.returns, strict=True):
            output.setType(kind)
        outputs = tuple(operation.outputs())
        if len(outputs) > 1:
            return outputs
        wanted = type_of(node.meta.get("val"))
        return outputs[0] if wanted is None else self._cast(outputs[0], wanted.kind())

    def _element(self, node: fx.Node) -> IRValue:
        source, index = node.args
        assert isinstance(source, fx.Node)
        values = self._values.get(source)
        if isinstance(values, tuple) and isinstance(index, int):
            return values[index]
        if values is None or isinstance(values, tuple) or values.type().kind() != "ListType":
            raise Obstacle("structure", f"{source.name} is not a list of TorchScript's")
        return self._emit("aten::__getitem__", [values, self._literal(index)], values.type().getElementType())

    def _number(self, node: fx.Node) -> IRValue:
        wanted = type_of(node.meta.get("val"))
        if wanted is None or node.kwargs:
            raise Obstacle("unknown-type", "nothing tells what kind of number it gives")
        operands = number_operands(node)
        name = NUMBER_OPS[node.target]  # type: ignore[index]
        value = self._argument(operands[0])
        if len(operands) == 1:
            return self._number_operation(name, [value], wanted)
        for operand in operands[1:]:
            value = self._number_operation(name, [value, self._argument(operand)], wanted)
        return value

    def _number_operation(self, name: str, operands: Sequence[IRValue], wanted: IRType) -> IRValue:
        value = self._emit(name, operands, wanted)
        schema = value.node().schema()
        if not schema.endswith(f"-> {wanted.str()}"):
            value.node().destroy()
            raise Obstacle("other-overload", f"for these arguments TorchScript has {schema}")
        return value

    # --- arguments -----------------------------------------------------------------------------------------

    def _argument(self, given: Any, wanted: IRType | None = None) -> IRValue:
        """Return what a node's argument is in TorchScript.

        Args:
            given: A node, a literal, or a list of them.
            wanted: Type in the operator's schema; None where there is none.
        """
        kind = None if wanted is None else wanted.kind()
        if kind == "OptionalType":
            assert wanted is not None
            return self._literal(None) if given is None else self._argument(given, wanted.getElementType())
        if isinstance(given, fx.Node):
            return self._cast(self._read(given), kind)
        if kind == "ListType":
            assert wanted is not None
            return self._list(given, wanted.getElementType())
        return self._cast(self._literal(_as_kind(given, kind)), kind)

    def _cast(self, value: IRValue, kind: str | None) -> IRValue:
        cast = _CASTS.get((kind, value.type().kind())) if kind is not None else None
        return value if cast is None else self._emit(cast[0], [value], cast[1])

    def _list(self, given: Any, element: IRType) -> IRValue:
        if not isinstance(given, (list, tuple)):
            raise Obstacle("structure", f"it takes a list and was given {type(given).__name__}")
        kind = element.kind()
        plain = [_as_kind(each, kind) for each in given]
        if plain and not self._keep_live and all(type(each) is _LIST_LITERALS.get(kind) for each in plain):
            return self._constant(plain, (kind, repr(plain)))
        elements = [self._argument(each, element) for each in given]
        if kind == "NumberType":
            elements = [self._emit("prim::unchecked_cast", [each], NUMBER) for each in elements]
        return self._emit("prim::ListConstruct", elements, _compat.list_of(element))

    def _literal(self, value: Any) -> IRValue:
        value = _MEMORY_FORMATS.get(value, value) if isinstance(value, torch.memory_format) else value
        if self._keep_live and isinstance(value, (bool, int, float, torch.dtype)):
            # With one argument that might change, the optimizer leaves the operator alone. See run_as_built.
            self._keep_live = False
            held = self.graph.addInput()
            held.setType(type_of(value) or INT)
            self._literal_inputs.append(held)
            self.literals.append(value)
            return held
        if not isinstance(value, _LITERALS):
            raise Obstacle(
                "literal", f"a {type(value).__name__} can't be written into a graph of TorchScript's"
            )
        return self._constant(value, (type(value), repr(value)))

    def _constant(self, value: Any, key: Any) -> IRValue:
        if key not in self._constants:
            self._constants[key] = self.graph.insertConstant(value)
        return self._constants[key]

    def _read(self, node: fx.Node) -> IRValue:
        value = self._values.get(node)
        if value is None:
            kind = self._types.get(node)
            if kind is None:
                raise Obstacle("unknown-type", f"nothing tells what kind of value {node.name} is")
            value = self._values[node] = self.graph.addInput()
            value.setType(kind)
            self._inputs.append(node)
        if isinstance(value, tuple):
            raise Obstacle("structure", f"{node.name} is a tuple")
        return value

    def _emit(self, name: str, arguments: Sequence[IRValue], kind: IRType) -> IRValue:
        operation = self.graph.create(name, list(arguments), 1)
        self.graph.insertNode(operation)
        (output,) = operation.outputs()
        output.setType(kind)
        return output

    # --- the whole -----------------------------------------------------------------------------------------

    def finish(self) -> tuple[list[fx.Node], list[fx.Node], list[fx.Node]]:
        """Give the graph its signature: a list of tensors, then numbers, then literals; a tuple comes back.

        Returns:
            The nodes whose values are the tensors, those whose values are the numbers, and those that it returns.
        """
        used = [node for node in self._inputs if self._values[node].uses()]  # type: ignore[union-attr]
        tensors = [node for node in used if self._types[node].kind() == "TensorType"]
        numbers = [node for node in used if node not in set(tensors)]
        returned = [
            node
            for node in self.nodes
            if not isinstance(self._values[node], tuple)
            and any(user not in self.nodes for user in node.users)
        ]
        outputs: list[IRValue] = [self._values[node] for node in returned]
        self.graph.registerOutput(
            self._emit("prim::TupleConstruct", outputs, _compat.tuple_of([each.type() for each in outputs]))
        )
        self._order_inputs([self._values[node] for node in tensors], [self._values[node] for node in numbers])
        self.graph.lint()
        return tensors, numbers, returned

    def _order_inputs(self, tensors: list[IRValue], numbers: list[IRValue]) -> None:
        before = len(list(self.graph.inputs()))
        if tensors:
            held = self.graph.addInput()
            held.setType(_compat.list_of(TENSOR))
            unpack = self.graph.create("prim::ListUnpack", [held], len(tensors))
            self.graph.prependNode(unpack)
            self.graph.create("aten::clear", [held], 0).insertAfter(unpack)
            _replace(tensors, list(unpack.outputs()))
        given = [*numbers, *self._literal_inputs]
        for old in given:
            self.graph.addInput().setType(old.type())
        new = list(self.graph.inputs())[before + bool(tensors) :]
        _replace(given, new)
        for place in reversed(range(before)):
            self.graph.eraseInput(place)


def _replace(old: Sequence[IRValue], new: Sequence[IRValue]) -> None:
    for one, other in zip(old, new, strict=True):
        other.setType(one.type())
        one.replaceAllUsesWith(other)


_LITERALS = (type(None), bool, int, float, complex, str, torch.device, torch.dtype, torch.layout)
_LIST_LITERALS: dict[str, type] = {"IntType": int, "FloatType": float, "BoolType": bool}


def _as_kind(given: Any, kind: str | None) -> Any:
    """Return a Python number as an operator with this kind of argument takes it: ``1`` for a float is ``1.0``."""
    if kind == "FloatType" and type(given) in (bool, int):
        return float(given)
    if kind == "IntType" and type(given) is bool:
        return int(given)
    if kind == "BoolType" and type(given) is int:
        return bool(given)
    if kind == "ComplexType" and type(given) in (bool, int, float):
        return complex(given)
    if kind == "DeviceObjType" and isinstance(given, str):
        return torch.device(given)
    return given


def _takes_numbers(found: str, traced: str, numbers: Sequence[str]) -> bool:
    """Tell whether one schema is the other with numbers where that has tensors.

    A traced call may give a number where the schema says Tensor, as Python's operators do; the same operator has an
    overload for it, such as ``add.Scalar`` beside ``add.Tensor``.
    """
    if not numbers or "(" not in found:
        return False
    ours, theirs = _arguments(found), _arguments(traced)
    return len(ours) == len(theirs) and all(
        (one.startswith("Scalar ") and name in numbers) if one != other else name not in numbers
        for one, other, name in ((a, b, _name(b)) for a, b in zip(ours, theirs, strict=True))
    )


def _arguments(schema: str) -> list[str]:
    return [
        each for each in schema[schema.index("(") + 1 : schema.rindex(" -> ") - 1].split(", ") if each != "*"
    ]


def _name(argument: str) -> str:
    return argument.split(" ")[-1].split("=")[0]
