"""Names for the inputs and outputs of an exported graph.

An exported graph takes and returns flat lists. The sections of each list come in a fixed order::

    inputs    tokens │ parameters │ buffers │ user inputs
    outputs   tokens │ updated inputs │ user outputs │ gradients of parameters │ gradients of user inputs

The last two are there only in a joint graph. Everything but the tokens' and updated inputs' numbers is known to
the caller; every section's start follows by adding up the sections before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from aot_core import _compat
from aot_core.errors import InconsistentMetadataError

__all__ = ["create_graph_signature"]


def create_graph_signature(
    fx_g: fx.GraphModule,
    fw_metadata: Any,
    in_spec: Any,
    out_spec: Any,
    *,
    user_args_flat: list[Any],
    params_and_buffers_flat: list[Any],
    param_names: list[str],
    buffer_names: list[str],
    trace_joint: bool,
    num_user_fw_outs: int | None,
    loss_index: int | None,
) -> Any:
    """Return the ``GraphSignature`` of an exported graph, with its backward part if the graph is a joint one.

    Where torch's own (2.10 to 2.14) is wrong: it looks up the loss, and the first gradient, without counting
    the tokens, and the loss without counting the updated inputs either. With batch norm in the module
    ``loss_output`` names the running mean.

    Args:
        fx_g: The graph.
        fw_metadata: ``ViewAndMutationMeta`` of the traced function.
        in_spec: Tree of the inputs, handed on.
        out_spec: Tree of the outputs, handed on.
        user_args_flat: The user's inputs.
        params_and_buffers_flat: Parameters, then buffers.
        param_names: Qualified names of the parameters.
        buffer_names: Qualified names of the buffers.
        trace_joint: Whether the graph holds the backward as well.
        num_user_fw_outs: How many outputs the user's function has; needed for a joint graph.
        loss_index: Which of them is the loss; needed for a joint graph.

    Raises:
        InconsistentMetadataError: the graph has more or fewer outputs than the sections add up to, or two
            gradients are one and the same value, so that a name can't tell them apart.
    """
    inputs = [node.name for node in fx_g.graph.nodes if node.op == "placeholder"]
    outputs = _output_names(fx_g.graph)
    tokens = len(fw_metadata.tokens)
    first_user_output = tokens + fw_metadata.num_mutated_inp_runtime_indices
    first_user_input = tokens + len(param_names) + len(buffer_names)

    backward = None
    if trace_joint:
        if num_user_fw_outs is None or loss_index is None:
            raise InconsistentMetadataError(
                "A joint graph was given without the number of the user's outputs or the index of the loss. Expected "
                f"two ints, got num_user_fw_outs={num_user_fw_outs} and loss_index={loss_index}."
            )
        if not 0 <= loss_index < num_user_fw_outs:
            raise InconsistentMetadataError(
                f"Expected the loss among {num_user_fw_outs} user outputs, got loss_index={loss_index}."
            )
        of_parameters, of_user_inputs = _gradients(
            outputs[first_user_output + num_user_fw_outs :],
            # Buffers follow the parameters and have no gradients.
            [
                name
                for name, value in zip(param_names, params_and_buffers_flat, strict=False)
                if _needs_grad(value)
            ],
            [
                name
                for name, value in zip(inputs[first_user_input:], user_args_flat, strict=False)
                if _needs_grad(value)
            ],
        )
        backward = _compat.backward_signature(
            of_parameters, of_user_inputs, outputs[first_user_output + loss_index]
        )
    else:
        num_user_fw_outs = len(outputs) - first_user_output

    return _compat.graph_signature(
        in_spec=in_spec,
        out_spec=out_spec,
        graph_input_names=inputs,
        graph_output_names=outputs,
        view_mutation_metadata=fw_metadata,
        named_parameters=param_names,
        named_buffers=buffer_names,
        num_user_inputs=len(inputs) - first_user_input,
        num_user_outputs=num_user_fw_outs,
        trace_joint=trace_joint,
        loss_index=loss_index,
        backward_signature=backward,
    )


def _output_names(graph: fx.Graph) -> list[Any]:
    # A constant among the outputs, such as None for an absent result, has no name.
    (returned,) = graph.output_node().args
    values = returned if isinstance(returned, (list, tuple)) else [returned]
    return [getattr(value, "name", None) for value in values]


def _needs_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _gradients(
    outputs: Sequence[Any], parameters: Sequence[str], user_inputs: Sequence[str]
) -> tuple[dict[Any, str], dict[Any, str]]:
    if len(outputs) != len(parameters) + len(user_inputs):
        raise InconsistentMetadataError(
            f"The graph returns {len(outputs)} gradients, where {len(parameters)} parameters and "
            f"{len(user_inputs)} user inputs require grad. Expected as many. Tokens, updated inputs and user outputs "
            "come before them."
        )
    of_parameters = dict(zip(outputs, parameters, strict=False))
    of_user_inputs = dict(zip(outputs[len(parameters) :], user_inputs, strict=True))
    if len(of_parameters | of_user_inputs) != len(outputs):
        shared = sorted({str(name) for name in outputs if list(outputs).count(name) > 1})
        raise InconsistentMetadataError(
            f"Two gradients are the same value of the graph ({', '.join(shared)}), and a signature tells gradients "
            "apart by name. Expected a value each. Scale one of the two tensors by a factor of 1.0 in the module."
        )
    return of_parameters, of_user_inputs
