"""Backends that are each wrong in one place, of eleven kinds, drawn at random; what is wrong is known.

``fault_17_0`` of this module is backend number 17, first draw: a module attribute, so that a reproducer can import it.

A fault changes what one node calls, or one decomposition, or what a partitioner returns. Everything else is eager.
"""

from __future__ import annotations

import dataclasses
import functools
import operator as operator_module
import random
import re
from collections.abc import Callable
from typing import Any

import torch
from functorch.compile import min_cut_rematerialization_partition
from small_models import MODELS, build
from torch import fx

from aot_core import aot_autograd, boxed_code, source_line
from aot_registry.bisecting.copies import Subject
from aot_registry.bisecting.observation import observe

__all__ = ["KINDS", "Fault", "draw", "manifest_fault"]

ATTEMPTS = 40

KINDS = (
    "wrong decomposition",
    "wrong partition",
    "forward-only",
    "backward-only",
    "precision loss",
    "lost mutation",
    "exception",
    "eaten RNG",
    "wrong stride",
    "wrong dtype",
    "aliasing",
)
MODELS_THAT_WRITE = ("convolution", "tally", "writes_input")

aten = torch.ops.aten


@dataclasses.dataclass(frozen=True)
class Fault:
    """A backend with a fault.

    Args:
        name: Attribute of this module.
        kind: Of `KINDS`.
        model: Of `MODELS`, for which it was drawn.
        stage: Where it must be found.
        role: Of the graph: ``"joint"``, ``"forward"`` or ``"backward"``.
        nodes: Names of nodes of which any is a right answer.
        operator: What is decomposed wrongly.
        source: The line of that.
        backend: The backend.
    """

    name: str
    kind: str
    model: str
    stage: str
    role: str
    nodes: tuple[str, ...]
    operator: str | None
    source: str | None
    backend: Any


# --- what a model's graphs hold -----------------------------------------------------------------------------


@functools.cache
def graphs_of(
    model_name: str, partition: Callable[..., Any] | None = None
) -> list[tuple[str, fx.GraphModule]]:
    """Return role and graph of all that a backend gets to compile for a model, in order."""
    found = []

    def keep(role):
        def compile_graph(gm, example_inputs):
            found.append((role, gm))
            return boxed_code(fx.GraphModule(gm, _copied(gm)))

        return compile_graph

    plain = aot_autograd(
        name="plain",
        fw_compiler=keep("forward"),
        bw_compiler=keep("backward"),
        partition_fn=partition,
        keep_inference_input_mutations=True,
    )
    model, inputs = build(model_name)
    torch.compiler.reset()
    torch.compile(model, backend=plain)(inputs)
    torch.compiler.reset()
    return found


def _copied(gm):
    graph = fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    return graph


def floating(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel() > 1


def writes(node: fx.Node) -> bool:
    return node.target is aten.copy_.default


def outputs_of(gm: fx.GraphModule) -> list[fx.Node]:
    node = next(node for node in gm.graph.nodes if node.op == "output")
    return [each for each in node.args[0] if isinstance(each, fx.Node)]


def calls(gm: fx.GraphModule) -> list[fx.Node]:
    # Taking a result apart is no operation.
    return [
        node
        for node in gm.graph.nodes
        if node.op == "call_function" and node.target is not operator_module.getitem
    ]


# --- what goes wrong at a node ------------------------------------------------------------------------------


class WrongCall:
    """Stands for an operator, and does something else."""

    def __init__(self, operator, effect):
        self.operator, self.effect = operator, effect
        self.__name__ = self.__qualname__ = "wrong_call"
        self.__module__ = __name__

    def __call__(self, *args, **kwargs):
        return self.effect(self.operator, args, kwargs)


def scaled(operator, args, kwargs):
    return operator(*args, **kwargs) * 1.05


def rounded(operator, args, kwargs):
    result = operator(*args, **kwargs)
    return result.to(torch.bfloat16).to(result.dtype)


def lost(operator, args, kwargs):
    return args[0]


def raising(operator, args, kwargs):
    raise NotImplementedError(f"no kernel for {operator}")


def after_a_draw(operator, args, kwargs):
    torch.rand(1)
    return operator(*args, **kwargs)


def laid_out_otherwise(operator, args, kwargs):
    return operator(*args, **kwargs).transpose(-1, -2).contiguous().transpose(-1, -2)


def widened(operator, args, kwargs):
    return operator(*args, **kwargs).to(torch.float64)


def over_its_operand(operator, args, kwargs):
    result = operator(*args, **kwargs)
    operand = next(arg for arg in args if isinstance(arg, torch.Tensor) and arg.shape == result.shape)
    with torch.no_grad():
        operand.copy_(result)
    return result


EFFECTS = {
    "forward-only": scaled,
    "backward-only": scaled,
    "precision loss": rounded,
    "lost mutation": lost,
    "exception": raising,
    "eaten RNG": after_a_draw,
    "wrong stride": laid_out_otherwise,
    "wrong dtype": widened,
    "aliasing": over_its_operand,
}


def break_node_(gm: fx.GraphModule, name: str, operator: Any, effect: Callable[..., Any]) -> None:
    for node in calls(gm):
        if node.name == name and str(node.target) == str(operator):
            node.target = WrongCall(node.target, effect)
    gm.recompile()


def candidates(kind: str, role: str, gm: fx.GraphModule) -> list[fx.Node]:
    """Return the nodes at which a kind of fault is one."""
    nodes = [node for node in calls(gm) if floating(node) and not writes(node)]
    if kind == "lost mutation":
        return [node for node in calls(gm) if writes(node)]
    if kind in ("wrong stride", "wrong dtype"):
        returned = outputs_of(gm)
        nodes = [node for node in nodes if node in returned[:2] and node.meta["val"].is_contiguous()]
        return [node for node in nodes if min(node.meta["val"].shape) > 1 and node.meta["val"].dim() > 1]
    if kind == "aliasing":
        return [node for node in nodes if _overwrites_something_alive(node)]
    views = (aten.t.default, aten.view.default, aten.transpose.int, aten.expand.default, aten.permute.default)
    return [node for node in nodes if node.target not in views]


def _overwrites_something_alive(node: fx.Node) -> bool:
    operands = [
        arg
        for arg in node.args
        if isinstance(arg, fx.Node) and floating(arg) and arg.meta["val"].shape == node.meta["val"].shape
    ]
    if not operands or operands[0].op != "call_function" or "view" in str(operands[0].target):
        return False
    order = list(node.graph.nodes)
    return any(order.index(user) > order.index(node) for user in operands[0].users)


# --- decompositions -----------------------------------------------------------------------------------------


def _gelu(x, *, approximate="none"):
    return x * 0.5 * (1 + torch.erf(x * 0.7))  # 1 / sqrt(2) is 0.7071


def _softmax(x, dim, half_to_float):
    shifted = torch.exp(x)
    return shifted / (shifted.sum(dim, keepdim=True) + 0.01)


DECOMPOSITIONS = {
    aten.gelu.default: _gelu,
    aten.silu.default: lambda x: x * torch.sigmoid(x * 1.01),
    aten.relu.default: lambda x: torch.where(x > 0.05, x, torch.zeros_like(x)),
    aten.tanh.default: lambda x: 2 / (1 + torch.exp(x * -2)) - 1.001,
    aten.sigmoid.default: lambda x: 1 / (1.002 + torch.exp(-x)),
    aten.sin.default: lambda x: x - x * x * x / 6,
    aten.softplus.default: lambda x: torch.log(1.01 + torch.exp(x)),
    aten.elu.default: lambda x: torch.where(x > 0, x, torch.exp(x) - 1.01),
    aten._softmax.default: _softmax,
    aten.mean.dim: lambda x, dim, keepdim=False: x.sum(dim, keepdim) / (x[0].numel() + 1),
    aten.addmm.default: lambda bias, a, b: torch.mm(a, b) + bias * 1.03,
    aten.sigmoid_backward.default: lambda grad, y: grad * (y - y * y * 1.02),
    aten.tanh_backward.default: lambda grad, y: grad * (1 - y * y * 1.02),
    aten.threshold_backward.default: lambda grad, x, limit: torch.where(
        x > 0.1, grad, torch.zeros_like(grad)
    ),
}


RIGHT = {
    aten.t.default: lambda x: torch.permute(x, list(reversed(range(x.dim())))),
    aten.exp.default: lambda x: torch.pow(torch.full_like(x, 2.718281828459045), x),
}
"""Right ones beside the wrong one, so that there is something to halve."""


# --- drawing ------------------------------------------------------------------------------------------------


def draw(number: int, attempt: int = 0) -> Fault | None:
    """Return a fault of kind ``number % 11``; None if the draw fell on a model that can't have it."""
    rng = random.Random(f"{number}/{attempt}")
    kind = KINDS[number % len(KINDS)]
    model = rng.choice(MODELS_THAT_WRITE if kind == "lost mutation" else list(MODELS))
    name = f"fault_{number}_{attempt}"
    if kind == "wrong decomposition":
        return _draw_decomposition(rng, name, model)
    if kind == "wrong partition":
        return _draw_partition(rng, name, model)
    wanted = {"forward-only": "forward", "lost mutation": "forward", "backward-only": "backward"}
    outputs = kind in ("wrong stride", "wrong dtype")
    role = "forward" if outputs else wanted.get(kind) or rng.choice(["forward", "backward"])
    places = [
        (node, gm) for found, gm in graphs_of(model) if found == role for node in candidates(kind, role, gm)
    ]
    if not places:
        return None
    node, _ = rng.choice(places)
    effect, node_name, operator = EFFECTS[kind], node.name, node.target

    def wrong(gm, example_inputs):
        break_node_(gm, node_name, operator, effect)
        return boxed_code(gm)

    def right(gm, example_inputs):
        return boxed_code(gm)

    backend = aot_autograd(
        name=name,
        fw_compiler=wrong if role == "forward" else right,
        bw_compiler=wrong if role == "backward" else right,
        keep_inference_input_mutations=True,
    )
    return Fault(name, kind, model, "backend", role, (node_name,), str(operator), None, backend)


def manifest_fault(number: int) -> Fault | None:
    """Return the first draw of a number that is a fault: with it, something that can be seen is another."""
    for attempt in range(ATTEMPTS):
        fault = draw(number, attempt)
        if fault is not None and _differs(fault):
            return fault
    return None


def _differs(fault: Fault) -> bool:
    model, inputs = build(fault.model)
    subject = Subject(model, inputs)
    torch.compiler.reset()
    eager = observe(subject, lambda model: model, seed=0)
    try:
        compiled = observe(subject, lambda model: torch.compile(model, backend=fault.backend), seed=0)
    except Exception:
        return True
    finally:
        torch.compiler.reset()
    for name, want in eager.items():
        have = compiled[name]
        if (want.stride, want.requires_grad, want.shares) != (have.stride, have.requires_grad, have.shares):
            return True
        if isinstance(want.value, torch.Tensor):
            if want.value.dtype != have.value.dtype:
                return True
            if not torch.allclose(want.value, have.value, rtol=1e-4, atol=1e-4):
                return True
    return False


def _draw_decomposition(rng: random.Random, name: str, model: str) -> Fault | None:
    nodes = [node for _, gm in graphs_of(model) for node in calls(gm) if node.target in DECOMPOSITIONS]
    if not nodes:
        return None
    operator = rng.choice(sorted({node.target for node in nodes}, key=str))
    first = next(node for node in nodes if node.target == operator)
    backend = aot_autograd(
        name=name,
        fw_compiler=lambda gm, example_inputs: boxed_code(gm),
        decompositions={**RIGHT, operator: DECOMPOSITIONS[operator]},
        keep_inference_input_mutations=True,
    )
    return Fault(
        name,
        "wrong decomposition",
        model,
        "decompositions",
        "joint",
        (first.name,),
        str(operator),
        source_line(first),
        backend,
    )


def _draw_partition(rng: random.Random, name: str, model: str) -> Fault | None:
    graphs = graphs_of(model, min_cut_rematerialization_partition)
    pairs = [
        (graphs[i][1], graphs[i + 1][1])
        for i in range(len(graphs) - 1)
        if graphs[i][0] == "forward" and graphs[i + 1][0] == "backward"
    ]
    if not pairs:
        return None
    forward, backward = rng.choice(pairs)
    names = {node.name for node in calls(forward)}
    again = [node for node in calls(backward) if node.name in names and floating(node)]
    own = [node for node in candidates("", "backward", backward) if node.name not in names]
    chosen = rng.choice(again or own) if again or own else None
    if chosen is None:
        return None
    node_name, operator = chosen.name, chosen.target

    def partition(joint, joint_inputs, *, num_fwd_outputs, **kwargs):
        parts = min_cut_rematerialization_partition(
            joint, joint_inputs, num_fwd_outputs=num_fwd_outputs, **kwargs
        )
        break_node_(parts[1], node_name, operator, scaled)
        return parts

    backend = aot_autograd(
        name=name,
        fw_compiler=lambda gm, example_inputs: boxed_code(gm),
        partition_fn=partition,
        keep_inference_input_mutations=True,
    )
    return Fault(
        name, "wrong partition", model, "partition", "backward", (node_name,), str(operator), None, backend
    )


def __getattr__(name: str) -> Any:
    found = re.fullmatch(r"fault_(\d+)_(\d+)", name)
    fault = draw(int(found[1]), int(found[2])) if found else None
    if fault is None:
        raise AttributeError(name)
    return fault.backend
