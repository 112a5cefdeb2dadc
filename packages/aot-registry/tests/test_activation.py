from __future__ import annotations

import importlib
import itertools
import logging
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from fake_site import FakeSite
from torch._dynamo import lookup_backend

import aot_registry
from aot_registry import BrokenBackendError, OverrideConflictError, UnknownOverrideError, activate


@pytest.fixture(autouse=True)
def torch_is_left_as_it_was() -> Iterator[None]:
    before = {name: lookup_backend(name) for name in ("aot_eager", "ts")}
    listed = torch.compiler.list_backends(())
    yield
    assert {name: lookup_backend(name) for name in ("aot_eager", "ts")} == before
    assert torch.compiler.list_backends(()) == listed


@pytest.fixture
def overriding(site: FakeSite) -> FakeSite:
    site.install_good("fake-a", "fake_aot_eager", overrides="aot_eager")
    site.install_good("fake-b", "fake_ts", overrides="ts")
    site.install_good("fake-c", "without_override")
    return site


def test_all_declared_overrides_by_default(overriding: FakeSite) -> None:
    original = lookup_backend("aot_eager")
    with activate() as activation:
        assert activation.overridden == {"aot_eager": "fake_aot_eager", "ts": "fake_ts"}
        assert lookup_backend("aot_eager") is aot_registry.get_backend("fake_aot_eager")
        assert lookup_backend("ts") is aot_registry.get_backend("fake_ts")
        assert repr(activation) == "Activation(aot_eager → fake_aot_eager, ts → fake_ts)"
        torch.compiler.list_backends()
    assert lookup_backend("aot_eager") is original


def test_only_what_is_asked_for(overriding: FakeSite) -> None:
    original = lookup_backend("ts")
    activation = activate(override=("aot_eager",))
    assert activation.overridden == {"aot_eager": "fake_aot_eager"}
    assert lookup_backend("ts") is original
    activation.undo()
    activation.undo()


def test_compiling_under_the_name_reaches_ours(overriding: FakeSite) -> None:
    overriding.write(
        {
            "fake_a_module.py": "calls = []\ndef backend(gm, inputs):\n    calls.append(gm)\n    return "
            "gm.forward\n"
        }
    )

    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    x = torch.tensor([3.0])
    with activate():
        inside = torch.compile(double, backend="aot_eager")
    # Looked up when torch.compile was called: it keeps its backend.
    assert inside(x).tolist() == [6.0]
    import fake_a_module  # type: ignore[import-not-found]

    assert len(fake_a_module.calls) == 1
    outside = torch.compile(double, backend="aot_eager")
    assert outside(x).tolist() == [6.0]
    assert len(fake_a_module.calls) == 1


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_activations_may_be_undone_in_any_order(overriding: FakeSite, order: tuple[int, ...]) -> None:
    original = lookup_backend("aot_eager")
    module = importlib.import_module("fake_a_module")
    backends, activations = [], []
    for override in (None, ("aot_eager",), ("ts", "aot_eager")):
        # Another object each time, so that it shows whose layer is on top.
        module.backend = types.FunctionType(module.backend.__code__, {})
        backends.append(module.backend)
        activations.append(activate(override))
    left = [0, 1, 2]
    for position in order:
        assert lookup_backend("aot_eager") is backends[left[-1]]
        activations[position].undo()
        activations[position].undo()
        left.remove(position)
    assert lookup_backend("aot_eager") is original


def test_undone_when_the_block_raises(overriding: FakeSite) -> None:
    original = lookup_backend("aot_eager")
    with pytest.raises(ZeroDivisionError), activate():
        raise ZeroDivisionError
    assert lookup_backend("aot_eager") is original


def test_what_someone_else_put_there_stays(overriding: FakeSite, caplog: pytest.LogCaptureFixture) -> None:
    from torch._dynamo.backends import registry

    original = lookup_backend("ts")
    activation = activate(("ts",))
    registry._COMPILER_FNS["ts"] = theirs = lambda gm, inputs: gm.forward
    with caplog.at_level(logging.WARNING, "aot_registry"):
        activation.undo()
    assert lookup_backend("ts") is theirs
    assert "ts was replaced by someone else" in caplog.text
    registry._COMPILER_FNS["ts"] = original


def test_a_name_that_torch_no_longer_has(site: FakeSite) -> None:
    site.install_good("fake-a", "fake_gone", overrides="gone_from_torch")
    with activate():
        assert lookup_backend("gone_from_torch") is aot_registry.get_backend("fake_gone")
    assert "gone_from_torch" not in torch.compiler.list_backends(())


def test_unknown_override(overriding: FakeSite) -> None:
    with pytest.raises(UnknownOverrideError) as caught:
        activate(("aot_eager", "aot_eagre"))
    assert str(caught.value) == (
        "No installed backend declares 'aot_eagre' as the name of torch's that it overrides. Did you mean "
        "'aot_eager'? Declared are: aot_eager, ts. See errors/unknown-override"
    )
    with pytest.raises(TypeError, match="got the string 'aot_eager'"):
        activate("aot_eager")


def test_inductor_cannot_be_overridden(site: FakeSite) -> None:
    site.install_good("fake-a", "fake_inductor", overrides="inductor")
    with pytest.raises(UnknownOverrideError, match="without looking its name up"):
        activate(("inductor",))


def test_override_wanted_twice(overriding: FakeSite) -> None:
    overriding.install_good("fake-d", "second", overrides="ts")
    with pytest.raises(
        OverrideConflictError, match=r"'fake_ts' of fake-b 1\.0.*'second' of fake-d 1\.0|'second'.*'fake_ts'"
    ):
        activate()
    with activate(("aot_eager",)) as activation:
        assert list(activation.overridden) == ["aot_eager"]


def test_broken_override(overriding: FakeSite, caplog: pytest.LogCaptureFixture) -> None:
    overriding.write({"fake_b_module.py": "raise RuntimeError('no')\n"})
    original = lookup_backend("aot_eager")
    with pytest.raises(BrokenBackendError, match="fake-b"):
        activate(("aot_eager", "ts"))
    assert lookup_backend("aot_eager") is original
    with caplog.at_level(logging.WARNING, "aot_registry"), activate() as activation:
        assert list(activation.overridden) == ["aot_eager"]
    assert "torch keeps its own backend ts" in caplog.text


def test_nothing_to_activate(site: FakeSite) -> None:
    with activate() as activation:
        assert dict(activation.overridden) == {}


def test_handle_is_read_only(overriding: FakeSite) -> None:
    with activate() as activation:
        overridden: Any = activation.overridden
        with pytest.raises(TypeError):
            overridden["eager"] = "x"
