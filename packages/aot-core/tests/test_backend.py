from __future__ import annotations

import contextlib
import dataclasses
import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import aot_core
from aot_core import Backend, aot_autograd
from aot_core.debug import aot_core_eager, aot_inductor_debug, run_eagerly


def as_is(gm: torch.fx.GraphModule, inputs: list[Any]) -> torch.fx.GraphModule:
    return gm


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


class TestObject:
    def test_fields_are_read_only(self) -> None:
        with pytest.raises(AttributeError, match="read-only"):
            aot_core_eager.name = "other"
        with pytest.raises(AttributeError, match="no attribute"):
            aot_core_eager.no_such_field  # noqa: B018

    def test_identity_is_equality(self) -> None:
        assert aot_core_eager == aot_core_eager
        assert aot_core_eager != aot_inductor_debug
        assert len({aot_core_eager, aot_inductor_debug}) == 2
        assert aot_core_eager.__name__ == "aot_core_eager"

    def test_the_registry_of_torch_may_write_tags_and_the_declared_ones_stay(self) -> None:
        aot_core_eager._tags = ()
        assert "debug" in aot_core_eager._tags

    def test_debug_backends_stay_out_of_the_default_list(self) -> None:
        from torch._dynamo.backends import registry

        registry.register_backend(aot_core_eager, name="listed_for_a_test")
        try:
            assert "listed_for_a_test" not in torch.compiler.list_backends()
            assert "listed_for_a_test" in torch.compiler.list_backends(exclude_tags=())
        finally:
            del registry._COMPILER_FNS["listed_for_a_test"], registry._BACKENDS["listed_for_a_test"]

    def test_equal_arguments_give_the_same_backend(self) -> None:
        table: dict[Any, Any] = {}

        def make(**changed: Any) -> Backend:
            return aot_autograd(**{"name": "x", "fw_compiler": as_is, "decompositions": table, **changed})

        assert make() is make()
        assert make() is not make(name="y")
        assert make() is not make(decompositions={})
        assert make() is not make(tags=("debug",))

    def test_methods_of_one_object_are_the_same_compiler(self) -> None:
        class Compiler:
            def compile(self, gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
                return gm

        one, other = Compiler(), Compiler()
        kept = aot_autograd(name="x", fw_compiler=one.compile)
        assert kept is aot_autograd(name="x", fw_compiler=one.compile)
        assert kept is not aot_autograd(name="x", fw_compiler=other.compile)

    def test_a_backend_that_its_compiler_refers_to_can_die(self) -> None:
        class Compiler:
            backend: Any = None

            def __call__(self, gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
                return gm

        compiler = Compiler()
        compiler.backend = aot_autograd(name="x", fw_compiler=compiler)
        alive = weakref.ref(compiler)
        del compiler
        gc.collect()
        assert alive() is None

    @pytest.mark.parametrize(
        "wrong",
        [
            {"fw_compiler": None},
            {"fw_compiler": as_is, "bw_compiler": 3},
            {"fw_compiler": as_is, "partition_fn": "min_cut"},
            {"fw_compiler": as_is, "settings": dict},
        ],
    )
    def test_wrong_arguments_are_named(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(TypeError, match=r"aot_autograd\(name='x'\) expects"):
            aot_autograd(name="x", **wrong)


class TestOptions:
    def test_a_recompile_needs_another_backend_or_other_options(
        self, reports: list[aot_core.CompileReport]
    ) -> None:
        for options in ({"check": "metadata"}, {"check": "metadata"}, {"check": "none"}):
            torch.compile(double, backend=aot_core_eager, options=options)(torch.ones(2))
        assert [report.settings["check"] for report in reports] == ["metadata", "none"]

    def test_settings_reach_the_compilers(self) -> None:
        @dataclasses.dataclass(frozen=True)
        class Level(aot_core.Settings):
            level: int = 1

        seen = []

        def compiler(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
            seen.append(aot_core.current_compilation().settings)
            return gm

        backend = aot_autograd(name="levelled", fw_compiler=compiler, settings=Level)
        torch.compile(double, backend=backend, options={"level": 4})(torch.ones(2))
        assert seen == [Level(level=4)]

    def test_an_unknown_option_fails_the_compile(self) -> None:
        with pytest.raises(Exception, match="Did you mean 'check'"):
            torch.compile(double, backend=aot_core_eager, options={"chekc": "metadata"})(torch.ones(2))

    def test_modes(self) -> None:
        seen = []

        def compiler(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
            seen.append(aot_core.current_compilation().mode)
            return gm

        backend = aot_autograd(name="moded", fw_compiler=compiler, modes=("fast",))
        graph = torch.fx.symbolic_trace(lambda x: (x * 2,))
        for mode in (None, "default", "fast"):
            backend(graph, [torch.ones(2)], mode=mode)
        assert seen == [None, None, "fast"]
        with pytest.raises(aot_core.UnsupportedModeError, match=r"'slow'.*'default', 'fast'"):
            backend(graph, [torch.ones(2)], mode="slow")
        with pytest.raises(Exception, match="UnsupportedModeError"):
            torch.compile(double, backend=aot_core_eager, mode="max-autotune")(torch.ones(2))


class TestCompilers:
    def test_boxed_and_unboxed_results(self) -> None:
        def unboxed(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
            return lambda *args: gm(*args)

        def a_boxed_one(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
            return aot_core.boxed(lambda args: gm(*args))

        for compiler in (unboxed, a_boxed_one, as_is):
            torch.compiler.reset()
            backend = aot_autograd(name="x", fw_compiler=compiler)
            x = torch.ones(3, requires_grad=True)
            torch.compile(double, backend=backend)(x).sum().backward()
            torch.testing.assert_close(x.grad, torch.full((3,), 2.0))

    @pytest.mark.parametrize("result", [None, 3])
    @pytest.mark.parametrize("stage", ["fw_compiler", "bw_compiler", "inference_compiler"])
    def test_a_result_that_cannot_be_called_is_named(self, result: Any, stage: str) -> None:
        compilers = {"fw_compiler": as_is, stage: lambda gm, inputs: result}
        backend = aot_autograd(name="broken", **compilers)
        x = torch.ones(2, requires_grad=stage != "inference_compiler")
        with pytest.raises(Exception, match=rf"backend 'broken'.*returned {result}, expected a callable"):
            torch.compile(double, backend=backend)(x)

    def test_a_partition_that_is_none_is_named(self) -> None:
        backend = aot_autograd(name="broken", fw_compiler=as_is, partition_fn=lambda j, i, **k: None)
        with pytest.raises(Exception, match=r"partitioner of backend 'broken'.*NoneType"):
            torch.compile(double, backend=backend)(torch.ones(2, requires_grad=True))

    def test_each_graph_goes_to_its_compiler(self) -> None:
        seen: list[str] = []

        def named(name: str) -> Any:
            def compiler(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
                seen.append(name)
                return gm

            return compiler

        backend = aot_autograd(
            name="x",
            fw_compiler=named("forward"),
            bw_compiler=named("backward"),
            inference_compiler=named("inference"),
        )
        compiled = torch.compile(double, backend=backend)
        compiled(torch.ones(2, requires_grad=True))
        compiled(torch.ones(2))
        assert seen == ["forward", "backward", "inference"]

    def test_decompositions_are_asked_at_each_compile(self) -> None:
        asked = []

        def table() -> dict[Any, Any]:
            asked.append(1)
            return {torch.ops.aten.silu.default: lambda x: x * torch.sigmoid(x)}

        operations: list[set[str]] = []

        def compiler(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
            operations.append({str(node.target) for node in gm.graph.nodes if node.op == "call_function"})
            return gm

        backend = aot_autograd(name="x", fw_compiler=compiler, decompositions=table)
        torch.compile(torch.nn.SiLU(), backend=backend)(torch.ones(2))
        torch.compile(double, backend=backend)(torch.ones(2))
        assert len(asked) == 2
        assert operations[0] == {"aten.mul.Tensor", "aten.sigmoid.default"}

    def test_saved_activations_can_be_freed_in_the_middle_of_a_backward(self) -> None:
        alive: list[bool] = []
        x = torch.ones(4, requires_grad=True)

        def backward(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
            def run(args: list[Any]) -> Any:
                # Neither the leaf, which this test holds, nor the tangent, which the engine holds.
                saved = [a for a in args if a.dim() == 1 and a.data_ptr() != x.data_ptr()]
                activations = [weakref.ref(activation) for activation in saved]
                del saved
                result = gm(*args)
                args.clear()
                alive.extend(activation() is not None for activation in activations)
                return result

            return aot_core.boxed(run)

        backend = aot_autograd(name="x", fw_compiler=run_eagerly_plain, bw_compiler=backward)
        torch.compile(lambda x: (x.sin() * 2).cos().sum(), backend=backend)(x).backward()
        assert alive
        assert not any(alive)


def run_eagerly_plain(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
    return aot_core.boxed(lambda args: gm(*args))


class TestRuntimeContext:
    @pytest.mark.parametrize("through", ["compile", "optimize"])
    def test_it_is_entered_once_around_each_call_and_left_on_exceptions(self, through: str) -> None:
        log: list[str] = []

        @contextlib.contextmanager
        def context() -> Iterator[None]:
            log.append("enter")
            try:
                yield
            finally:
                log.append("leave")

        fail = False

        def compiler(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
            def run(args: list[Any]) -> Any:
                log.append("run")
                if fail:
                    raise ValueError("in the kernel")
                return gm(*args)

            return aot_core.boxed(run)

        backend = aot_autograd(name="x", fw_compiler=compiler, runtime_context=context)
        assert backend.backend_ctx_ctor is not contextlib.nullcontext
        if through == "compile":
            compiled = torch.compile(double, backend=backend)
        else:
            # Dynamo itself enters backend_ctx_ctor here, around the whole frame.
            compiled = torch._dynamo.optimize(backend)(double)
        loss = compiled(torch.ones(2, requires_grad=True)).sum()
        assert log == ["enter", "run", "leave"]
        log.clear()
        loss.backward()
        assert log == ["enter", "run", "leave"]
        log.clear()
        fail = True
        with pytest.raises(ValueError, match="in the kernel"):
            compiled(torch.ones(2, requires_grad=True))
        assert log == ["enter", "run", "leave"]

    def test_without_one_dynamo_gets_a_null_context(self) -> None:
        assert aot_core_eager.backend_ctx_ctor is contextlib.nullcontext


class TestCounters:
    @staticmethod
    def counts() -> dict[str, int]:
        from torch._dynamo.utils import counters

        return dict(counters["aot_autograd"])

    @pytest.fixture(autouse=True)
    def cleared(self) -> None:
        from torch._dynamo.utils import counters

        counters.clear()

    def test_ok(self) -> None:
        torch.compile(double, backend=aot_core_eager)(torch.ones(2))
        assert self.counts() == {"total": 1, "ok": 1}

    def test_a_failed_backward_compile_is_not_ok(self) -> None:
        def broken(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
            raise RuntimeError("no backward")

        backend = aot_autograd(name="x", fw_compiler=as_is, bw_compiler=broken)
        with pytest.raises(Exception, match="no backward"):
            torch.compile(double, backend=backend)(torch.ones(2, requires_grad=True))
        assert self.counts() == {"total": 1, "not_ok": 1}

    def test_a_restart_of_dynamo_is_not_counted_as_a_fault(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from torch._dynamo.exc import TensorifyScalarRestartAnalysis

        from aot_core import _compat

        def restart(*args: Any, **kwargs: Any) -> Any:
            raise TensorifyScalarRestartAnalysis

        monkeypatch.setattr(_compat, "compile_with_aot_autograd", restart)
        with pytest.raises(TensorifyScalarRestartAnalysis):
            aot_core_eager(torch.fx.symbolic_trace(lambda x: (x,)), [torch.ones(2)])
        assert "not_ok" not in self.counts()
        assert "ok" not in self.counts()


def test_the_debug_backends_come_without_inductor() -> None:
    code = (
        "import sys, torch; before = 'torch._inductor' in sys.modules\n"
        "import aot_core.debug; aot_core.debug.aot_inductor_debug\n"
        "sys.exit(before or 'torch._inductor' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_compiling_from_a_compiler_works() -> None:
    def compiler(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        inner = aot_autograd(name="inner", fw_compiler=run_eagerly_plain)
        inner(torch.fx.symbolic_trace(lambda x: (x + 1,)), [torch.ones(2)])
        assert aot_core.current_compilation().backend == "outer"
        return gm

    backend = aot_autograd(name="outer", fw_compiler=compiler)
    assert torch.compile(double, backend=backend)(torch.ones(1)).item() == 2


def test_a_compiled_graph_is_public_api_of_the_debug_module() -> None:
    backend = aot_autograd(name="x", fw_compiler=run_eagerly, settings=aot_core_eager.settings_type)
    assert torch.compile(double, backend=backend)(torch.ones(1)).item() == 2


# torch looks at .grad of the loss.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_dynamo_looks_into_no_compiled_graph() -> None:
    """A backward that runs inside a frame of Dynamo's is seen by its frame evaluator."""
    from torch._dynamo.utils import counters

    traced: list[bool] = []

    def compiler(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        def run(args: list[Any]) -> Any:
            traced.append(torch.compiler.is_compiling())
            return [out.clone() for out in gm(*args)]

        return aot_core.boxed(run)

    x = torch.ones(2, requires_grad=True)
    loss = torch.compile(double, backend=aot_autograd(name="x", fw_compiler=compiler))(x).sum()
    counters.clear()
    torch.compile(lambda loss: loss.backward(), backend="eager")(loss)
    torch.testing.assert_close(x.grad, torch.full((2,), 2.0))
    assert traced == [False, False]  # forward, backward
    assert counters["stats"]["unique_graphs"] == 0
