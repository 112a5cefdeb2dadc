from __future__ import annotations

import glob
import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import aot_core
from aot_core.debug import aot_core_eager, aot_inductor_debug

BACKENDS = [aot_core_eager, aot_inductor_debug]


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 4, 3)
        self.norm = torch.nn.LayerNorm(3)
        self.head = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.nn.functional.gelu(self.norm(self.conv(x)))
        return self.head(hidden.mean((2, 3)).t().contiguous().t()).log_softmax(-1)


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda b: b.name)
@pytest.mark.parametrize("check", ["none", "metadata", "crossref"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_right_model_passes_every_check(backend: Any, check: str, dynamic: bool) -> None:
    torch.manual_seed(1)
    model = Block().double()
    compiled = torch.compile(model, backend=backend, options={"check": check}, dynamic=dynamic)
    for batch in (3, 4):
        x = torch.randn(batch, 2, 5, 5, dtype=torch.float64)
        out = compiled(x)
        gradients = torch.autograd.grad(out.square().sum(), list(model.parameters()))
        wanted = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
        torch.testing.assert_close(gradients, wanted)


@pytest.fixture
def lying_operators() -> Iterator[Any]:
    """Operators whose fake implementation promises another dtype, size or stride than the real one gives."""
    library = torch.library.Library("aot_core_test", "FRAGMENT")
    library.define("wrong_dtype(Tensor x) -> Tensor")
    library.define("wrong_size(Tensor x) -> Tensor")
    library.define("wrong_stride(Tensor x) -> Tensor")
    library.define("wrong_for_rows(Tensor x) -> Tensor")
    library.impl("wrong_dtype", lambda x: x.double(), "CPU")
    library.impl("wrong_dtype", lambda x: torch.empty_like(x), "Meta")
    library.impl("wrong_size", lambda x: x.new_ones(x.shape[0] + 1, x.shape[1]), "CPU")
    library.impl("wrong_size", lambda x: torch.empty_like(x), "Meta")
    library.impl("wrong_stride", lambda x: x.t().contiguous().t(), "CPU")
    library.impl("wrong_stride", lambda x: torch.empty_like(x), "Meta")
    yield torch.ops.aot_core_test
    library._destroy()


@pytest.mark.parametrize("check", ["metadata", "crossref"])
@pytest.mark.parametrize(
    ("name", "words"),
    [("wrong_dtype", "float64"), ("wrong_size", r"size \(4, 4\)"), ("wrong_stride", r"strides \(1, 3\)")],
)
def test_a_wrong_promise_is_found_and_located(
    lying_operators: Any, check: str, name: str, words: str
) -> None:
    operator = getattr(lying_operators, name)

    def f(x: torch.Tensor) -> torch.Tensor:
        return operator(x.sin())

    compiled = torch.compile(f, backend=aot_core_eager, options={"check": check})
    with pytest.raises(aot_core.GraphCheckError, match=words) as caught:
        compiled(torch.ones(3, 4))
    assert "test_debug.py:" in str(caught.value)
    assert name in str(caught.value)
    torch.compile(f, backend=aot_core_eager)(torch.ones(3, 4))


def test_crossref_finds_what_the_trace_hid(lying_operators: Any) -> None:
    """The meta function is changed after the trace: only one run on the actual inputs can tell."""
    library = torch.library.Library("aot_core_late", "FRAGMENT")
    promise = [torch.float32]
    library.define("op(Tensor x) -> Tensor")
    library.impl("op", lambda x: x * 2, "CPU")
    library.impl("op", lambda x: torch.empty_like(x, dtype=promise[0]), "Meta")
    try:
        for check, fails in (("metadata", False), ("crossref", True)):
            promise[0] = torch.float32
            torch.compiler.reset()
            compiled = torch.compile(
                lambda x: torch.ops.aot_core_late.op(x), backend=aot_core_eager, options={"check": check}
            )
            compiled(torch.ones(2))
            promise[0] = torch.float64
            if fails:
                with pytest.raises(aot_core.GraphCheckError, match="its meta function promised dtype"):
                    compiled(torch.ones(2))
            else:
                compiled(torch.ones(2))
    finally:
        library._destroy()


def test_dynamic_sizes_are_resolved_by_the_inputs_of_the_call(lying_operators: Any) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, x]).sin()[:, : x.shape[0] // 2]

    compiled = torch.compile(f, backend=aot_core_eager, options={"check": "metadata"}, dynamic=True)
    for n in (4, 6, 9):
        torch.testing.assert_close(compiled(torch.ones(n, 8)), f(torch.ones(n, 8)))
    lying = torch.compile(
        lambda x: lying_operators.wrong_size(x),
        backend=aot_core_eager,
        options={"check": "metadata"},
        dynamic=True,
    )
    with pytest.raises(aot_core.GraphCheckError, match=r"size \(6, 4\)"):
        lying(torch.ones(5, 4))


# torch opens a log of its own in that directory, and leaves it open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
class TestGraphDump:
    def files(self) -> list[str]:
        from torch._dynamo.utils import get_debug_dir

        return sorted(
            os.path.basename(path) for path in glob.glob(os.path.join(get_debug_dir(), "aot_core", "*"))
        )

    @pytest.fixture(autouse=True)
    def directory(self, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setenv("TORCH_COMPILE_DEBUG", "1")
        with torch._dynamo.config.patch(debug_dir_root=str(tmp_path)):
            yield

    def test_all_graphs_are_written(self) -> None:
        compiled = torch.compile(lambda x: x.sin().sum(), backend=aot_core_eager)
        compiled(torch.ones(2, requires_grad=True)).backward()
        compiled(torch.ones(2))
        stages = sorted(name.rpartition("_")[2] for name in self.files())
        assert stages == ["backward.py", "forward.py", "inference.py", "joint.py"]

    def test_a_failed_compile_leaves_its_graphs_and_no_handlers(self) -> None:
        def broken(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
            raise RuntimeError("broken")

        def handlers() -> list[logging.Handler]:
            loggers = [logging.getLogger(), *map(logging.getLogger, logging.root.manager.loggerDict)]
            return [handler for logger in loggers for handler in logger.handlers]

        torch.compile(lambda x: x + 1, backend=aot_core_eager)(torch.ones(2))
        before = handlers()
        backend = aot_core.aot_autograd(name="x", fw_compiler=broken)
        with pytest.raises(Exception, match="broken"):
            torch.compile(lambda x: x.sin().sum(), backend=backend)(torch.ones(2, requires_grad=True))
        assert any(name.endswith("_joint.py") for name in self.files())
        assert handlers() == before

    def test_nothing_is_written_unasked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TORCH_COMPILE_DEBUG", "0")
        torch.compile(lambda x: x + 1, backend=aot_core_eager)(torch.ones(2))
        assert self.files() == []
