"""Lightning: a compiled ``LightningModule`` has the losses of the one that is not."""

from __future__ import annotations

import lightning
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import aot_core
from installed_backends import TRAINING, UNUSABLE, assert_compiled, assert_refused

# Of Lightning itself: it reads pytrees by a class that torch deprecates, and asks for processes that load data.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    # Of Dynamo, where it goes on after a break with a loss in hand.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]


class Regression(lightning.LightningModule):
    """A network and its training step.

    Args:
        logs: How ``training_step`` logs the loss: not at all, by a method that Dynamo leaves out, or directly.
    """

    def __init__(self, logs: str = "no") -> None:
        super().__init__()
        self.net = Net()
        self.losses: list[torch.Tensor] = []
        self.logs = logs

    def training_step(self, batch, index):
        inputs, targets = batch
        loss = nn.functional.mse_loss(self.net(inputs), targets)
        self.losses.append(loss.detach())
        if self.logs == "kept out":
            self.log_eagerly(loss)
        elif self.logs == "traced":
            self.log("loss", loss)
        return loss

    @torch.compiler.disable
    def log_eagerly(self, loss):
        self.log("loss", loss)

    def configure_optimizers(self):
        # Not Adam: it divides by the gradients' size, and a wrong factor in all of them would not show.
        return torch.optim.SGD(self.parameters(), lr=0.2)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.gelu(self.up(self.norm(x))))


def build(**how) -> Regression:
    torch.manual_seed(14)
    return Regression(**how).double()


def fit(module) -> None:
    generator = torch.Generator().manual_seed(15)
    inputs = torch.randn(12, 8, dtype=torch.float64, generator=generator)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=3,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, DataLoader(TensorDataset(inputs, inputs[:, :1].sin()), batch_size=4))


@pytest.fixture(autouse=True)
def fresh():
    torch.compiler.reset()


@pytest.fixture(scope="module")
def expected():
    module = build()
    fit(module)
    assert len(module.losses) == 3
    assert not torch.allclose(module.losses[0], module.losses[-1], rtol=1e-2), "nothing was learnt"
    return module.losses


@pytest.mark.parametrize("backend", TRAINING)
def test_compiled_module(backend, expected):
    module = build()
    with aot_core.record_reports() as reports:
        fit(torch.compile(module, backend=backend))
    assert_compiled(reports, backend)
    torch.testing.assert_close(module.losses, expected, rtol=1e-9, atol=0)


@pytest.mark.parametrize("backend", UNUSABLE)
def test_backend_that_cannot_run_here_says_why(backend, monkeypatch):
    monkeypatch.setenv("AOT_STRICT", "1")
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as raised:
        fit(torch.compile(build(), backend=backend))
    assert isinstance(raised.value.inner_exception, aot_core.AotError)
    assert_refused(str(raised.value), backend)


def test_network_inside_compiled_in_place(expected):
    """What Lightning does in ``training_step`` then stays out of Dynamo's way."""
    module = build(logs="traced")
    module.net.compile(backend="aot_core_eager")
    with aot_core.record_reports() as reports:
        fit(module)
    assert_compiled(reports, "aot_core_eager")
    torch.testing.assert_close(module.losses, expected, rtol=1e-9, atol=0)


def test_logging_kept_out_of_the_graph(expected):
    module = build(logs="kept out")
    with aot_core.record_reports() as reports:
        fit(torch.compile(module, backend="aot_core_eager"))
    assert_compiled(reports, "aot_core_eager")
    torch.testing.assert_close(module.losses, expected, rtol=1e-9, atol=0)


def test_logging_in_a_compiled_step_fails_with_any_backend():
    """The limit is Dynamo's. When this fails, torch has mended it: then say so in docs/howto/frameworks.md."""
    with pytest.raises(torch._dynamo.exc.InternalTorchDynamoError, match="__dict__"):
        fit(torch.compile(build(logs="traced"), backend="eager"))
