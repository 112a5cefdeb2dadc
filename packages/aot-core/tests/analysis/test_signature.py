"""Names of exported graphs: sections of inputs and outputs."""

from __future__ import annotations

import types

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import fx
from torch.utils import _pytree as pytree

from aot_core import InconsistentMetadataError
from aot_core.analysis import create_graph_signature

SPEC = pytree.tree_structure(())


def graph_of(inputs, outputs):
    """A graph with these placeholders, that returns one new node for each output."""
    graph = fx.Graph()
    for name in inputs:
        graph.placeholder(name)
    returned = []
    for name in outputs:
        node = graph.call_function(torch.ops.aten.zeros.default, ([1],))
        node._rename(name)
        returned.append(node)
    graph.output(tuple(returned))
    return fx.GraphModule(torch.nn.Module(), graph)


def metadata(tokens, parameters, buffers, users, written):
    infos = [types.SimpleNamespace(mutates_data=False) for _ in range(parameters + buffers + users)]
    for number in written:
        infos[parameters + number].mutates_data = True
    return types.SimpleNamespace(
        tokens=dict.fromkeys(range(tokens)), input_info=infos, num_mutated_inp_runtime_indices=len(written)
    )


@given(
    tokens=st.integers(0, 2),
    params=st.lists(st.booleans(), max_size=3),
    buffers=st.integers(0, 2),
    users=st.lists(st.sampled_from(["grad", "tensor", "number"]), min_size=1, max_size=3),
    outputs=st.integers(1, 3),
    joint=st.booleans(),
    data=st.data(),
)
def test_every_section_is_where_it_belongs(tokens, params, buffers, users, outputs, joint, data):
    written = data.draw(st.lists(st.integers(0, buffers + len(users) - 1), unique=True).map(sorted))
    inputs = [f"token{i}" for i in range(tokens)] + [f"p{i}" for i in range(len(params))]
    inputs += [f"b{i}" for i in range(buffers)] + [f"u{i}" for i in range(len(users))]
    names = [f"token_out{i}" for i in range(tokens)] + [f"written{i}" for i in written]
    names += [f"out{i}" for i in range(outputs)]
    of_params = [f"grad_p{i}" for i, grad in enumerate(params) if grad]
    of_users = [f"grad_u{i}" for i, kind in enumerate(users) if kind == "grad"]
    if joint:
        names += of_params + of_users
    loss = data.draw(st.integers(0, outputs - 1))

    signature = create_graph_signature(
        graph_of(inputs, names),
        metadata(tokens, len(params), buffers, len(users), written),
        SPEC,
        SPEC,
        user_args_flat=[
            3 if kind == "number" else torch.zeros(1, requires_grad=kind == "grad") for kind in users
        ],
        params_and_buffers_flat=[torch.zeros(1, requires_grad=grad) for grad in params]
        + [torch.zeros(1)] * buffers,
        param_names=[f"module.p{i}" for i in range(len(params))],
        buffer_names=[f"module.b{i}" for i in range(buffers)],
        trace_joint=joint,
        num_user_fw_outs=outputs if joint else None,
        loss_index=loss if joint else None,
    )
    assert signature.input_tokens == [f"token{i}" for i in range(tokens)]
    assert signature.output_tokens == [f"token_out{i}" for i in range(tokens)]
    assert signature.user_inputs == [f"u{i}" for i in range(len(users))]
    assert signature.user_outputs == [f"out{i}" for i in range(outputs)]
    assert signature.buffers_to_mutate == {f"written{i}": f"module.b{i}" for i in written if i < buffers}
    assert signature.user_inputs_to_mutate == {
        f"written{i}": f"u{i - buffers}" for i in written if i >= buffers
    }
    backward = signature.backward_signature
    if not joint:
        assert backward is None
        return
    assert backward.loss_output == f"out{loss}"
    assert backward.gradients_to_parameters == {name: f"module.{name[5:]}" for name in of_params}
    assert backward.gradients_to_user_inputs == {name: name[5:] for name in of_users}


def joint(names, **changes):
    arguments = {
        "user_args_flat": [torch.zeros(1)],
        "params_and_buffers_flat": [torch.zeros(1, requires_grad=True)] * 2,
        "param_names": ["a", "b"],
        "buffer_names": [],
        "trace_joint": True,
        "num_user_fw_outs": 1,
        "loss_index": 0,
    }
    gm = names if isinstance(names, fx.GraphModule) else graph_of(["p0", "p1", "u0"], names)
    return create_graph_signature(gm, metadata(0, 2, 0, 1, []), SPEC, SPEC, **{**arguments, **changes})


def test_a_missing_gradient_is_refused():
    with pytest.raises(InconsistentMetadataError, match="returns 1 gradients"):
        joint(["out", "grad_a"])


def test_one_value_for_two_gradients_is_refused():
    gm = graph_of(["p0", "p1", "u0"], ["out", "grad"])
    (returned,) = gm.graph.output_node().args
    gm.graph.output_node().args = ((*returned, returned[1]),)
    with pytest.raises(InconsistentMetadataError, match=r"same value of the graph \(grad\)"):
        joint(gm)


def test_a_joint_graph_needs_its_loss():
    with pytest.raises(InconsistentMetadataError, match="index of the loss"):
        joint(["out", "ga", "gb"], loss_index=None)
