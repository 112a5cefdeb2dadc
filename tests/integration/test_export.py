"""Programs of ``torch.export``, compiled with each backend: outputs, gradients and buffers are those of the model."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import aot_core
from installed_backends import TRAINING, assert_compiled

# torch.export's own: unpickling a program deep-copies specifications by a class that it deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec:FutureWarning")

WIDTH = 6
DYNAMIC_BATCH = ({0: torch.export.Dim.DYNAMIC},)


class Model(nn.Module):
    """Has a buffer that every call writes, and running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 8)
        self.norm = nn.BatchNorm1d(8)
        self.down = nn.Linear(8, 2)
        self.register_buffer("calls", torch.zeros((), dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        return self.down(nn.functional.gelu(self.norm(self.up(x))))


def build() -> Model:
    torch.manual_seed(6)
    return Model().double()


def batches(*sizes: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randn(size, WIDTH, dtype=torch.float64, generator=generator) for size in sizes]


SIZES = (4, 4, 7)


def train(model: nn.Module) -> list[torch.Tensor]:
    """Return outputs and gradients of some steps, and the buffers after them."""
    found = []
    for x in batches(*SIZES):
        x.requires_grad_()
        model.zero_grad()
        output = model(x)
        output.square().sum().backward()
        found += [output.detach(), x.grad, *(parameter.grad.clone() for parameter in model.parameters())]
    return found + [buffer.clone() for buffer in model.buffers()]


def infer(model: nn.Module) -> list[torch.Tensor]:
    with torch.no_grad():
        return [model(x) for x in batches(*SIZES)]


def saved_and_loaded(program: torch.export.ExportedProgram, folder) -> torch.export.ExportedProgram:
    torch.export.save(program, folder / "program.pt2")
    return torch.export.load(folder / "program.pt2")


@pytest.mark.parametrize("backend", TRAINING)
def test_exported_model_trains(backend, tmp_path):
    torch.compiler.reset()
    (example,) = batches(5)
    program = saved_and_loaded(
        torch.export.export(build(), (example,), dynamic_shapes=DYNAMIC_BATCH), tmp_path
    )
    with aot_core.record_reports() as reports:
        found = train(torch.compile(program.module(), backend=backend))
    assert_compiled(reports, backend)
    torch.testing.assert_close(found, train(build()), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("backend", TRAINING)
def test_decomposed_program_infers(backend, tmp_path):
    torch.compiler.reset()
    (example,) = batches(5)
    program = torch.export.export(build().eval(), (example,), dynamic_shapes=DYNAMIC_BATCH)
    program = saved_and_loaded(program.run_decompositions(), tmp_path)
    with aot_core.record_reports() as reports:
        found = infer(torch.compile(program.module(), backend=backend))
    assert {(report.backend, report.status) for report in reports} == {(backend, "ok")}
    torch.testing.assert_close(found, infer(build().eval()), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("backend", TRAINING)
def test_decomposed_batch_norm_does_not_train_in_eager_either(backend):
    """``run_decompositions`` has the running statistics overwritten while the backward needs them."""
    torch.compiler.reset()
    (example,) = batches(5)
    module = torch.export.export(build(), (example,)).run_decompositions().module()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        module(example).sum().backward()
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as raised:
        torch.compile(module, backend=backend)(example)
    assert isinstance(raised.value.inner_exception, aot_core.UnsupportedAliasingError)
