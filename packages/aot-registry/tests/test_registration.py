from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import aot_registry
from aot_registry import (
    DuplicateBackendError,
    InvalidBackendError,
    UnknownBackendError,
    register_backend,
    register_debug_backend,
    unregister_backend,
)
from aot_registry.registration import registered


@pytest.fixture(autouse=True)
def nothing_left_registered() -> Iterator[None]:
    yield
    for name in registered():
        unregister_backend(name)


def make_backend(calls: list[str]) -> Any:
    def recording(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Any:
        calls.append("compiled")
        return gm.forward

    return recording


def run(backend: str) -> None:
    torch._dynamo.reset()
    result = torch.compile(lambda x: x * 3, backend=backend)(torch.tensor([2.0]))
    assert result.tolist() == [6.0]


def test_registered_backend_is_known_everywhere() -> None:
    calls: list[str] = []
    backend = make_backend(calls)
    assert register_backend(backend, name="mine", tags=("training",)) is backend
    assert "mine" in aot_registry.list_backends()
    assert "mine" not in aot_registry.list_backends(exclude_tags=("training",))
    assert "mine" in aot_registry.BACKENDS and aot_registry.BACKENDS["mine"] is backend
    assert aot_registry.get_backend("mine") is backend
    assert aot_registry.probe("mine").usable
    assert "mine" in torch.compiler.list_backends()
    run("mine")
    assert calls == ["compiled"]


def test_undo() -> None:
    backend = make_backend([])
    before = torch.compiler.list_backends(())
    register_backend(backend, name="mine")
    unregister_backend("mine")
    assert "mine" not in aot_registry.BACKENDS
    assert torch.compiler.list_backends(()) == before
    with pytest.raises(UnknownBackendError):
        aot_registry.get_backend("mine")
    register_backend(backend, name="mine")


def test_decorators() -> None:
    @register_backend
    def bare(gm: Any, example_inputs: Any) -> Any:
        return gm.forward

    @register_backend(name="by_another_name", tags=("cpu",))
    def named(gm: Any, example_inputs: Any) -> Any:
        return gm.forward

    @register_debug_backend
    def debugging(gm: Any, example_inputs: Any) -> Any:
        return gm.forward

    @register_debug_backend(name="debugging_too", tags=("cpu",))
    def debugging_too(gm: Any, example_inputs: Any) -> Any:
        return gm.forward

    assert aot_registry.get_backend("bare") is bare
    assert aot_registry.get_backend("by_another_name") is named
    assert {"bare", "by_another_name"} <= set(aot_registry.list_backends())
    assert {"debugging", "debugging_too"}.isdisjoint(aot_registry.list_backends())
    assert {"debugging", "debugging_too"} <= set(aot_registry.list_backends(exclude_tags=()))
    assert registered()["debugging_too"].tags == ("debug", "cpu")
    assert {"debugging", "debugging_too"}.isdisjoint(torch.compiler.list_backends())


def test_duplicates_are_refused_and_named(site: Any) -> None:
    site.install("fake", torch={"declared": "fake:backend"})
    backend = make_backend([])
    register_backend(backend, name="mine")
    with pytest.raises(
        DuplicateBackendError, match=r"'mine' is registered already.*unregister_backend\('mine'\)"
    ):
        register_backend(make_backend([]), name="mine")
    with pytest.raises(DuplicateBackendError, match=r"declared by fake 1\.0 .*'declared = fake:backend'"):
        register_backend(backend, name="declared")
    with pytest.raises(DuplicateBackendError, match="torch has a backend 'eager' already"):
        register_backend(backend, name="eager")
    assert aot_registry.get_backend("mine") is backend


@dataclasses.dataclass(frozen=True)
class Frozen:
    def __call__(self, gm: Any, example_inputs: Any) -> Any:
        return gm.forward


@pytest.mark.parametrize(
    ("backend", "name", "message"),
    [
        (3, "three", "got int, which can't be called"),
        (functools.partial(print), None, "A partial has no __name__. Pass name="),
        (Frozen(), "frozen", "is a Frozen, which refuses the attribute _tags"),
    ],
)
def test_what_is_not_a_backend_is_refused(backend: Any, name: str | None, message: str) -> None:
    with pytest.raises(InvalidBackendError, match=message):
        register_backend(backend, name=name)
    assert registered() == {}
    # torch's listing fails for all if one such backend gets in.
    torch.compiler.list_backends()


def test_a_string_of_tags_is_refused() -> None:
    with pytest.raises(InvalidBackendError, match="got the string 'debug'"):
        register_backend(make_backend([]), name="mine", tags="debug")


def test_unregistering_what_is_not_registered() -> None:
    register_backend(make_backend([]), name="mine")
    with pytest.raises(UnknownBackendError, match=r"No backend 'mime' is registered\. Did you mean 'mine'"):
        unregister_backend("mime")
