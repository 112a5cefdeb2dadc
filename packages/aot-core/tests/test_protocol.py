from __future__ import annotations

import json
import subprocess
import sys

import pytest

from aot_core import Availability, BackendInfo, CompileReport, Decision, missing_interfaces
from aot_core.info import AOT_CORE_EAGER, AOT_INDUCTOR_DEBUG, probe


@pytest.mark.parametrize("module", ["aot_core", "aot_core.protocol", "aot_core.info", "aot_core.errors"])
def test_the_protocol_imports_without_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "not a name", "target": "a:b"},
        {"name": "x", "target": "no_colon"},
        {"name": "x", "target": "a:b", "probe": "a.b"},
        {"name": "x", "target": "a b:c"},
    ],
)
def test_a_malformed_backend_info_is_refused(fields: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="BackendInfo"):
        BackendInfo(summary="", **fields)


def test_records_are_plain_data() -> None:
    decision = Decision("safety", "lstm", "fallback", "lstm-training", "why", "model.py:3")
    report = CompileReport("x", "#0", decisions=[decision])
    data = json.loads(json.dumps(report.to_dict()))
    assert data["decisions"] == [decision.to_dict()]
    assert str(decision) == "[safety] fallback lstm (model.py:3) [lstm-training]: why"
    assert Availability(False, "r", "m").to_dict() == {"usable": False, "reason": "r", "remedy": "m"}


def test_every_public_name_resolves() -> None:
    import aot_core

    for name in aot_core.__all__:
        assert getattr(aot_core, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        aot_core.no_such_name  # noqa: B018


@pytest.mark.parametrize("info", [AOT_CORE_EAGER, AOT_INDUCTOR_DEBUG])
def test_infos_describe_the_backends(info: BackendInfo) -> None:
    import aot_core.debug

    backend = getattr(aot_core.debug, info.target.partition(":")[2])
    assert (backend.name, backend.tags) == (info.name, info.tags)


def test_the_probe_finds_this_torch_usable() -> None:
    assert probe().usable, probe()


def test_the_probe_names_what_torch_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    from aot_core import _compat

    monkeypatch.setattr(_compat, "REQUIRED", (("torch", "compile"), ("torch", "gone"), ("torch._gone", "x")))
    assert missing_interfaces(_compat.REQUIRED) == ["torch.gone", "torch._gone.x"]
    assert not probe().usable
