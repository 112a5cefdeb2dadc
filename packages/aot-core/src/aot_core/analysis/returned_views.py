"""Values of which a graph returns views, laid out as eager lays them out.

Before::

    def graph(x):
        y = x.t().clone()
        return y[0]                         # eager's strides are those of a column of x

After::

    def graph(x):
        y = force_stride_order(x.t().clone(), (1, 2))
        return y[0]

Inductor gives an intermediate value the layout that suits it, and a view that is returned the strides that follow
(torch 2.10 to 2.13, silently).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aot_core import _compat
from aot_core.aliasing.memory import has_memory
from aot_core.analysis.view_makers import find_makers

if TYPE_CHECKING:
    from torch import fx

__all__ = ["keep_returned_strides_"]


def keep_returned_strides_(graph: fx.Graph) -> None:
    """Have the views that a graph returns to its caller keep their strides. Changes the graph.

    Args:
        graph: Of ATen operators without effects, with fake tensors on its nodes.
    """
    makers = find_makers(graph)
    returned = graph.output_node().all_input_nodes[: _compat.forward_returns()]
    for value in dict.fromkeys(makers[node] for node in returned if makers[node] is not node):
        tensor = value.meta.get("val")
        if value.op != "call_function" or not has_memory(tensor) or _compat.is_symbolic(tensor):
            continue
        readers = list(value.users)
        with graph.inserting_after(value):
            ordered = _compat.with_stride_order(value)
        ordered.meta = dict(value.meta)
        for reader in readers:
            reader.replace_input_with(value, ordered)
