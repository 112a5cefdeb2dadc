"""The ``Trainer`` of transformers: losses of a small language model are those of the run that is not compiled.

``torch_compile_backend`` goes through accelerate, which takes the names of its own list alone. Any other backend
compiles the model before the ``Trainer`` gets it.
"""

from __future__ import annotations

import pytest
import torch
from accelerate.state import AcceleratorState
from accelerate.utils import DynamoBackend
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import aot_core
from installed_backends import DECLARED, TRAINING, UNUSABLE, assert_compiled, assert_refused

LISTED = {backend.value.lower() for backend in DynamoBackend}
VOCABULARY, LENGTH, STEPS, BATCH = 32, 8, 3, 4


def build() -> LlamaForCausalLM:
    """Return a model of one layer with random weights; nothing is fetched."""
    torch.manual_seed(12)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=2 * LENGTH,
    )
    return LlamaForCausalLM(config).double()


def data() -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(13)
    texts = torch.randint(VOCABULARY, (STEPS * BATCH, LENGTH), generator=generator)
    return [{"input_ids": text, "labels": text} for text in texts]


def train(model: LlamaForCausalLM, folder, **how) -> tuple[list[float], list[torch.Tensor]]:
    """Return the loss of each step as the Trainer logs it, in float32, and the parameters after the last."""
    arguments = TrainingArguments(
        output_dir=str(folder),
        use_cpu=True,
        max_steps=STEPS,
        per_device_train_batch_size=BATCH,
        # Neither Adam nor clipping: both divide by the gradients' size, and a wrong factor in all would not show.
        optim="sgd",
        max_grad_norm=0,
        learning_rate=0.5,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        **how,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=data())
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return losses, [parameter.detach() for parameter in model.parameters()]


def assert_same_training(found, expected) -> None:
    assert found[0] == pytest.approx(expected[0], rel=1e-6)
    # The model's norms compute in float32 whatever its parameters are, and a decomposition rounds otherwise there.
    torch.testing.assert_close(found[1], expected[1], rtol=1e-6, atol=1e-7)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    losses, parameters = train(build(), tmp_path_factory.mktemp("eager"))
    assert len(losses) == STEPS
    assert losses[-1] != pytest.approx(losses[0], rel=1e-3), "a model that does not move proves nothing"
    return losses, parameters


@pytest.fixture(autouse=True)
def fresh():
    torch.compiler.reset()
    # The first Accelerator of a process keeps its backend for all that follow.
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.parametrize("name", sorted(LISTED & set(TRAINING)))
def test_backend_by_argument(name, expected, tmp_path):
    with aot_core.record_reports() as reports:
        found = train(build(), tmp_path, torch_compile=True, torch_compile_backend=name)
    assert_compiled(reports, name)
    assert_same_training(found, expected)


@pytest.mark.parametrize("name", sorted(LISTED & set(UNUSABLE)))
def test_backend_that_cannot_run_here_says_why(name, tmp_path, monkeypatch):
    monkeypatch.setenv("AOT_STRICT", "1")
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as raised:
        train(build(), tmp_path, torch_compile=True, torch_compile_backend=name)
    assert isinstance(raised.value.inner_exception, aot_core.AotError)
    assert_refused(str(raised.value), name)


@pytest.mark.parametrize("name", sorted(DECLARED.keys() - LISTED))
def test_name_that_accelerate_does_not_list_is_refused(name, tmp_path):
    with pytest.raises(ValueError, match=f"'{name.upper()}' is not a valid DynamoBackend"):
        train(build(), tmp_path, torch_compile=True, torch_compile_backend=name)


@pytest.mark.parametrize("backend", TRAINING)
def test_model_compiled_before(backend, expected, tmp_path):
    model = build()
    model.compile(backend=backend)
    with aot_core.record_reports() as reports:
        found = train(model, tmp_path)
    assert_compiled(reports, backend)
    assert_same_training(found, expected)
