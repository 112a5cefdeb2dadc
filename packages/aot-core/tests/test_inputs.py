"""What may come in, and what a compile may do with it: look."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import aot_core
from aot_core.debug import aot_core_eager


def graph_of(function: Any) -> torch.fx.GraphModule:
    return torch.fx.symbolic_trace(function)


class TestExampleInputs:
    def test_fake_inputs_will_do(self) -> None:
        with FakeTensorMode():
            fake = torch.empty(3, requires_grad=True)
        compiled = aot_core_eager(graph_of(lambda x: (x * 2,)), [fake])
        x = torch.ones(3, requires_grad=True)
        compiled(x)[0].sum().backward()
        torch.testing.assert_close(x.grad, torch.full((3,), 2.0))

    def test_no_operation_runs_on_them(self) -> None:
        seen: list[str] = []

        class Watch(TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                if any(
                    isinstance(a, torch.Tensor) and a.data_ptr() == x.data_ptr()
                    for a in args
                    if type(a) is torch.Tensor
                ):
                    seen.append(str(func))
                return func(*args, **(kwargs or {}))

        x = torch.ones(3)
        graph = graph_of(lambda x: (x.sin() * 2,))
        version = x._version
        with Watch():
            aot_core_eager(graph, [x])
        assert [name for name in seen if "sin" in name or "mul" in name or "clone" in name] == []
        assert x._version == version

    def test_they_are_not_kept(self) -> None:
        x = torch.ones(3, requires_grad=True)
        compiled = aot_core_eager(graph_of(lambda x: (x * 2,)), [x])
        alive = weakref.ref(x)
        del x
        gc.collect()
        assert alive() is None
        compiled(torch.ones(3, requires_grad=True))


class TestNested:
    @pytest.mark.parametrize("requires_grad", [False, True])
    def test_lists_tuples_and_dictionaries(self, requires_grad: bool) -> None:
        def f(pair: Any, named: Any, scale: Any) -> Any:
            return (pair[0] * named["w"] + pair[1][0] * scale,)

        def inputs() -> list[Any]:
            a, b, w = (torch.full((2,), v, requires_grad=requires_grad) for v in (2.0, 3.0, 5.0))
            return [[a, (b,)], {"w": w}, 7.0]

        compiled = aot_core_eager(graph_of(f), inputs())
        given, wanted = inputs(), inputs()
        (out,), (reference,) = compiled(*given), f(*wanted)
        torch.testing.assert_close(out, reference)
        if requires_grad:
            out.sum().backward()
            reference.sum().backward()
            torch.testing.assert_close(given[1]["w"].grad, wanted[1]["w"].grad)

    def test_under_autocast(self) -> None:
        graph = graph_of(lambda pair: (pair[0] @ pair[1],))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            compiled = aot_core_eager(graph, [[torch.eye(2), torch.eye(2)]])
            assert compiled([torch.eye(2), torch.eye(2)])[0].dtype == torch.bfloat16

    def test_another_structure_is_refused(self) -> None:
        compiled = aot_core_eager(graph_of(lambda pair: (pair[0],)), [[torch.ones(1), torch.ones(1)]])
        with pytest.raises(TypeError, match="inputs of another structure"):
            compiled([torch.ones(1)])


class TestThroughDynamo:
    def test_symbolic_ints_floats_and_bools(self, reports: list[aot_core.CompileReport]) -> None:
        def f(x: torch.Tensor, n: int, scale: float, flip: bool) -> tuple[torch.Tensor, int]:
            return (x * scale + n) * (-1 if flip else 1), n + 1

        compiled = torch.compile(f, backend=aot_core_eager, dynamic=True)
        for n, scale, flip in ((2, 0.5, False), (5, 1.5, False), (7, 2.5, True)):
            x = torch.randn(n + 2, requires_grad=True)
            torch.testing.assert_close(compiled(x, n, scale, flip), f(x, n, scale, flip))

    def test_a_dynamic_batch_compiles_once(self, reports: list[aot_core.CompileReport]) -> None:
        model = torch.nn.Linear(4, 2)
        compiled = torch.compile(model, backend=aot_core_eager, dynamic=True)
        for batch in (3, 5, 8):
            x = torch.randn(batch, 4, requires_grad=True)
            compiled(x).sum().backward()
            torch.testing.assert_close(x.grad, model.weight.sum(0).expand(batch, 4))
        assert len(reports) == 1

    def test_no_grad_inference_mode_and_fullgraph(self, reports: list[aot_core.CompileReport]) -> None:
        model = torch.nn.Linear(4, 2)
        compiled = torch.compile(model, backend=aot_core_eager, fullgraph=True)
        x = torch.randn(3, 4)
        for context in (torch.no_grad, torch.inference_mode):
            with context():
                torch.testing.assert_close(compiled(x), model(x))
        assert {stage for report in reports for stage in report.stages} == {"inference"}

    def test_a_mutation_stays_in_the_compiled_graph(self, reports: list[aot_core.CompileReport]) -> None:
        def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            x.add_(1)
            return x * y

        x, y = torch.zeros(3), torch.ones(3, requires_grad=True)
        torch.compile(f, backend=aot_core_eager)(x, y).sum().backward()
        torch.testing.assert_close((x, y.grad), (torch.ones(3), torch.ones(3)))
        (report,) = reports
        assert (report.status, report.decisions) == ("ok", [])

    def test_retain_graph(self) -> None:
        x = torch.randn(3, requires_grad=True)
        out = torch.compile(lambda x: x.sin().cos().sum(), backend=aot_core_eager)(x)
        out.backward(retain_graph=True)
        once = x.grad.clone()  # type: ignore[union-attr]
        out.backward()
        torch.testing.assert_close(x.grad, 2 * once)

    # torch reads .grad of every input that compiled autograd hands it.
    @pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
    def test_compiled_autograd(self) -> None:
        x = torch.randn(3, requires_grad=True)
        with torch._dynamo.compiled_autograd._enable(torch.compile(backend=aot_core_eager)):
            (x * 2).sin().sum().backward()
        torch.testing.assert_close(x.grad, 2 * torch.cos(2 * x.detach()))


# torch looks at .grad of every input it makes a fake tensor for.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
class TestWritesUnderNoGrad:
    """Autograd must not see them: recorded, such a write would cut the history of what it writes to."""

    @pytest.mark.parametrize("keep", [True, False])
    @pytest.mark.parametrize("name", ["leaf", "intermediate", "view of a leaf"])
    def test_history_and_gradient_of_the_input(self, name: str, keep: bool) -> None:
        make = {
            "leaf": lambda leaf: leaf,
            "intermediate": lambda leaf: leaf.clone(),
            "view of a leaf": lambda leaf: leaf.narrow(0, 0, 2),
        }[name]

        def f(x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                x.add_(0.5)
            return x * 2

        backend = aot_core.aot_autograd(
            name="x", fw_compiler=lambda gm, inputs: gm, keep_inference_input_mutations=keep
        )
        seen = []
        for function in (f, torch.compile(f, backend=backend)):
            leaf = torch.ones(3, requires_grad=True)
            x = make(leaf)
            (function(x).sum() + x.sum()).backward()
            seen.append((leaf.grad, leaf.detach(), x.detach()))
        torch.testing.assert_close(seen[1], seen[0])

    def test_graphs_are_functional_unless_the_compiler_wants_them_otherwise(self) -> None:
        targets: list[set[str]] = []

        def compiler(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
            targets.append({str(node.target) for node in gm.graph.nodes if node.op == "call_function"})
            return gm

        for keep in (False, True):
            torch.compiler.reset()
            backend = aot_core.aot_autograd(
                name="x", fw_compiler=compiler, keep_inference_input_mutations=keep
            )
            x = torch.zeros(2)
            torch.compile(lambda x: x.add_(1), backend=backend)(x)
            assert x.tolist() == [1, 1]
        assert targets == [{"aten.add.Tensor"}, {"aten.add.Tensor", "aten.copy_.default"}]
