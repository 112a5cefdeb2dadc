"""A graph as a list of calls: what is run while capturing.

It frees each value after its last use, as the generated code of a boxed graph does, and it knows which node it is at,
so that a refusal can name the user's line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from aot_core import source_line

__all__ = ["Progress", "Tape", "generators_of"]


class Progress:
    """Where a run of a tape is.

    Attributes:
        node: The node that is running or, after an exception, that raised.
    """

    def __init__(self) -> None:
        self.node: fx.Node | None = None

    @property
    def source(self) -> str | None:
        """The user's source line of the node."""
        return None if self.node is None else source_line(self.node)


class Tape:
    """A graph of calls, prepared to be run.

    Args:
        gm: The graph. Not changed.
    """

    def __init__(self, gm: fx.GraphModule) -> None:
        self._gm = gm
        self._last_uses = _last_uses(gm.graph)

    def run(self, args: list[Any], progress: Progress) -> Any:
        """Run the graph and return its outputs.

        Args:
            args: Its inputs. Emptied, so that each can be freed after its last use.
            progress: Kept up to date.
        """
        args.reverse()
        values: dict[fx.Node, Any] = {}

        def fetch(structure: Any) -> Any:
            return fx.node.map_arg(structure, values.__getitem__)

        for node in self._gm.graph.nodes:
            progress.node = node
            if node.op == "placeholder":
                values[node] = args.pop()
            elif node.op == "get_attr":
                values[node] = _attribute(self._gm, node.target)
            elif node.op == "call_function":
                values[node] = node.target(*fetch(node.args), **fetch(node.kwargs))
            elif node.op == "call_method":
                receiver, *rest = fetch(node.args)
                values[node] = getattr(receiver, node.target)(*rest, **fetch(node.kwargs))
            elif node.op == "call_module":
                values[node] = self._gm.get_submodule(node.target)(*fetch(node.args), **fetch(node.kwargs))
            else:
                return fetch(node.args[0])
            for dead in self._last_uses.get(node, ()):
                del values[dead]
        raise AssertionError("a graph ends with its output")


def _last_uses(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """Return for each node the values that nothing after it uses."""
    seen: set[fx.Node] = set()
    dead: dict[fx.Node, list[fx.Node]] = {}
    for node in reversed(graph.nodes):
        for used in (node, *node.all_input_nodes):
            if used not in seen:
                seen.add(used)
                if node.op != "output":
                    dead.setdefault(node, []).append(used)
    return dead


def _attribute(module: Any, path: Any) -> Any:
    for name in str(path).split("."):
        module = getattr(module, name)
    return module


def generators_of(gm: fx.GraphModule, args: Sequence[Any]) -> tuple[torch.Generator, ...]:
    """Return the random number generators among a graph's attributes and inputs."""
    attributes = (_attribute(gm, node.target) for node in gm.graph.nodes if node.op == "get_attr")
    return tuple(value for value in (*attributes, *args) if isinstance(value, torch.Generator))
