"""The partitioner: a ``partition_fn`` for AOTAutograd, and an object of the class that Inductor wants."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from torch import fx

from aot_partition.errors import NotDifferentiableError
from aot_partition.extract import Assignment, extract
from aot_partition.joint_graph import JointGraph
from aot_partition.mincut.activation_budget import saved_as_torch


def min_cut_partition(
    joint,
    joint_inputs=None,
    *,
    num_fwd_outputs,
    static_lifetime_input_indices=None,
    recomputable_ops=None,
    budget=None,
    cost_model="torch",
    compiler=None,
):
    graph = JointGraph(
        joint, num_fwd_outputs=num_fwd_outputs, static_lifetime_input_indices=static_lifetime_input_indices
    )
    saved = saved_as_torch(graph, recomputable_ops=recomputable_ops)
    return extract(graph, Assignment(saved))
