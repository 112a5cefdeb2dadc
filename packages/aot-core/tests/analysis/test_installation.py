"""Ours in the place of torch's, and torch's again."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
import torch

import aot_core
from aot_core import analysis

NAMES = {
    "remove_dupe_metadata": ("input_output_analysis", "runtime_wrappers"),
    "create_synthetic_base_metadata": ("input_output_analysis", "runtime_wrappers"),
    "compute_overlapping_inputs": ("input_output_analysis", "runtime_wrappers"),
    "create_graph_signature": ("input_output_analysis",),
}


def held() -> dict:
    from torch._functorch import _aot_autograd, aot_autograd
    from torch._functorch._aot_autograd import (
        autograd_cache,
        graph_compile,
        input_output_analysis,
        runtime_wrappers,
    )

    assert _aot_autograd and input_output_analysis and runtime_wrappers
    found = {
        (module, name): getattr(getattr(_aot_autograd, module), name)
        for name, modules in NAMES.items()
        for module in modules
    }
    found |= {("aot_autograd", name): getattr(aot_autograd, name) for name in NAMES}
    found[("autograd_cache", "key")] = autograd_cache.autograd_cache_key
    found[("graph_compile", "pass for floats")] = graph_compile.tensorify_python_scalars
    return found


def test_every_importer_is_given_ours_and_gets_its_own_back():
    stock = held()
    with analysis.install():
        for place, function in held().items():
            assert function is getattr(analysis, place[1], function)
            assert function is not stock[place]
    assert held() == stock


def test_installations_nest():
    stock = held()
    outer = analysis.install()
    analysis.install()
    analysis.uninstall()
    assert analysis.is_installed()
    outer.uninstall()
    outer.uninstall()
    assert not analysis.is_installed() and held() == stock
    with pytest.raises(aot_core.AnalysisInstallationError, match="nothing was installed"):
        analysis.uninstall()


def test_threads_install_and_uninstall():
    stock = held()
    errors = []

    def work():
        try:
            for _ in range(5):
                with analysis.install():
                    assert analysis.is_installed()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [] and held() == stock


def test_an_incomplete_torch_is_refused_and_left_alone(monkeypatch):
    from torch._functorch._aot_autograd import input_output_analysis

    monkeypatch.delattr(input_output_analysis, "create_graph_signature")
    before = input_output_analysis.remove_dupe_metadata
    with pytest.raises(aot_core.AnalysisInstallationError, match="create_graph_signature"):
        analysis.install()
    assert input_output_analysis.remove_dupe_metadata is before and not analysis.is_installed()


def test_a_fresh_process_can_install_first():
    code = (
        "import sys\nfrom aot_core import analysis\nassert 'torch' not in sys.modules\n"
        "analysis.install()\nfrom torch._functorch._aot_autograd import runtime_wrappers\n"
        "assert runtime_wrappers.remove_dupe_metadata is analysis.remove_dupe_metadata"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.filterwarnings("ignore:`torch.jit.script")
def test_a_warm_cache_serves_nobody_the_others_result(tmp_path, monkeypatch):
    from torch._dynamo.utils import counters
    from torch._functorch import config
    from torch._inductor import config as inductor_config

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))

    def hits_and_misses() -> tuple[int, int]:
        torch.compiler.reset()
        counters.clear()
        torch.compile(lambda x: (x * 2).sin(), backend="inductor")(torch.ones(5))
        counted = counters["aot_autograd"]
        return counted["autograd_cache_hit"], counted["autograd_cache_miss"]

    with config.patch(enable_autograd_cache=True), inductor_config.patch(fx_graph_cache=True):
        assert hits_and_misses() == (0, 1)
        assert hits_and_misses() == (1, 0)
        with analysis.install():
            assert hits_and_misses() == (0, 1)
            assert hits_and_misses() == (1, 0)
        assert hits_and_misses() == (1, 0)
        assert torch.compiler.config.cache_key_tag == ""


@pytest.mark.usefixtures("installed")
def test_a_graph_that_returns_nothing():
    def program(x):
        x.unsqueeze_(0)

    x = torch.ones(3)
    torch.compile(program, backend="aot_eager")(x)
    assert x.shape == (1, 3)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_what_shares_memory_as_it_was_compiled_for_runs_compiled(backend, caplog):
    def program(a, b):
        a.mul_(2)
        return a + b

    compiled = torch.compile(program, backend=backend)
    for _ in range(2):
        base = torch.arange(8.0)
        compiled(base[:4], base[1:5])
    assert "uncompiled" not in caplog.text
    base = torch.arange(8.0)
    compiled(base[:4], base[2:6])
    assert caplog.text.count("it runs uncompiled on such inputs") == 1


@pytest.mark.filterwarnings("ignore:`torch.jit.script")
def test_a_pass_of_the_users_own_runs_too():
    from torch._inductor import config

    seen = []
    with config.patch(post_grad_custom_post_pass=seen.append), analysis.install():
        torch.compile(lambda x: x.mul_(2).clone(), backend="inductor")(torch.ones(4))
    assert len(seen) == 1


@pytest.mark.usefixtures("installed")
@pytest.mark.filterwarnings("ignore:`torch.jit.script")
def test_a_warm_cache_serves_nobody_what_was_compiled_for_another_sharing(tmp_path, monkeypatch):
    from torch._functorch import config
    from torch._inductor import config as inductor_config

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))

    def program(a, b):
        a.mul_(2)
        b.add_(1)
        return a + b

    with config.patch(enable_autograd_cache=True), inductor_config.patch(fx_graph_cache=True):
        for second in (8, 2, 1):
            torch.compiler.reset()
            expected, base = torch.arange(16.0), torch.arange(16.0)
            total = program(expected[1:5], expected[second : second + 4])
            got = torch.compile(program, backend="inductor")(base[1:5], base[second : second + 4])
            torch.testing.assert_close([base, got], [expected, total], rtol=0, atol=0)
