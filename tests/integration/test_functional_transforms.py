"""Transforms of ``torch.func`` inside compiled functions, with each backend: results are those of eager.

Dynamo traces them away: what reaches a backend is a graph of plain operations, with the derivative written out.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, hessian, jacrev, jvp, vmap
from torch.utils._pytree import tree_leaves

import aot_core
from installed_backends import TRAINING, assert_compiled

# torch scripts its formulas of forward-mode derivatives, and deprecates doing so.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")

WIDTH = 4


def build(norm: bool) -> nn.Sequential:
    torch.manual_seed(8)
    between = [nn.LayerNorm(6)] if norm else []
    return nn.Sequential(nn.Linear(WIDTH, 6), *between, nn.GELU(), nn.Linear(6, 2)).double()


# Dynamo can't trace forward-mode derivatives of layer norm: below, a test shows it with torch's own backend.
NORMED, PLAIN = build(norm=True), build(norm=False)
PARAMETERS = dict(NORMED.named_parameters())


def loss(parameters, x):
    return functional_call(NORMED, parameters, (x,)).square().mean()


def energy(x):
    return PLAIN(x).sin().sum()


TRANSFORMS = {
    "vmap of grad of functional_call": lambda x: vmap(grad(loss), in_dims=(None, 0))(PARAMETERS, x),
    "jacrev": lambda x: jacrev(lambda y: NORMED(y))(x[0]),
    "jvp": lambda x: jvp(energy, (x,), (x.cos(),)),
    "hessian": lambda x: hessian(energy)(x[0]),
}


def inputs() -> torch.Tensor:
    return torch.randn(3, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(9))


def tensors(tree) -> list[torch.Tensor]:
    return [leaf.detach() for leaf in tree_leaves(tree)]


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
@pytest.mark.parametrize("backend", TRAINING)
def test_transform_inside_what_is_compiled(backend, transform):
    torch.compiler.reset()
    with aot_core.record_reports() as reports:
        found = torch.compile(transform, backend=backend, fullgraph=True)(inputs())
    assert {(report.backend, report.status) for report in reports} == {(backend, "ok")}
    torch.testing.assert_close(tensors(found), tensors(transform(inputs())), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("backend", TRAINING)
def test_autograd_through_a_compiled_transform(backend):
    """A step that trains on a gradient penalty: the graph's own backward is that of a backward."""

    def step(x):
        return loss(PARAMETERS, x) + grad(loss, argnums=1)(PARAMETERS, x).square().sum()

    def gradients(function):
        return torch.autograd.grad(function(inputs()), tuple(PARAMETERS.values()), allow_unused=True)

    torch.compiler.reset()
    with aot_core.record_reports() as reports:
        found = gradients(torch.compile(step, backend=backend, fullgraph=True))
    assert_compiled(reports, backend)
    torch.testing.assert_close(found, gradients(step), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("backend", TRAINING)
def test_transform_around_what_is_compiled_runs_in_eager(backend):
    """torch does not compile under a transform; the result is right, and no graph is reported."""
    torch.compiler.reset()
    compiled = torch.compile(energy, backend=backend)
    with aot_core.record_reports() as reports:
        found = grad(compiled)(inputs())
    assert reports == []
    torch.testing.assert_close(found, grad(energy)(inputs()))


def test_forward_mode_through_layer_norm_fails_with_any_backend():
    """The limit is Dynamo's. When this fails, torch has mended it: then say so in docs/howto/frameworks.md."""
    torch.compiler.reset()
    compiled = torch.compile(lambda x: jvp(NORMED, (x,), (x.cos(),)), backend="eager")
    with pytest.raises(torch._dynamo.exc.TorchRuntimeError, match="layer_norm"):
        compiled(inputs())
