"""An interpreter of graphs that may run while another thread traces."""

from __future__ import annotations

from typing import Any

from torch import fx

__all__ = ["RuntimeInterpreter"]


class RuntimeInterpreter(fx.Interpreter):
    """Runs a graph node by node; as safe beside a trace in another thread as a plain call.

    `torch.fx.Interpreter` is made for traces: it notes which node runs in a record that the whole process shares, and
    what another thread traces meanwhile gets that node's source lines, or fails in the middle of its backward.

    One object is for one call at a time, since it holds the values of that call.
    """

    def run_node(self, n: fx.Node) -> Any:
        """Return the value of a node, computed from the values in ``self.env``."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)
