"""Who takes part, and what is said of a name that is nobody's."""

import pytest

import aot_registry
from aot_core.protocol import Availability
from aot_registry.bench import contenders
from aot_registry.bench.contenders import Contender, check_backend_names, choose_contenders
from aot_registry.errors import UnknownBackendError


@pytest.fixture
def installed(monkeypatch):
    """Two backends installed, one of them not usable; counts the probes."""
    probed = []

    def probe(name):
        probed.append(name)
        return Availability(name != "needs_gpu", "" if name != "needs_gpu" else "no CUDA device")

    monkeypatch.setattr(aot_registry, "list_backends", lambda exclude_tags: ["aot_nice", "needs_gpu"])
    monkeypatch.setattr(aot_registry, "probe", probe)
    return probed


def test_by_default_eager_and_all_installed(installed):
    assert choose_contenders() == [
        Contender("eager", Availability(True)),
        Contender("aot_nice", Availability(True)),
        Contender("needs_gpu", Availability(False, "no CUDA device")),
    ]


def test_named_ones_in_their_order_each_once_and_eager_first(installed):
    told = []
    chosen = choose_contenders(
        ["inductor", "aot_nice", "eager", "inductor"], advance=lambda name, count: told.append((name, count))
    )
    assert [contender.backend for contender in chosen] == ["eager", "inductor", "aot_nice"]
    assert told == [("aot_nice", 1)]
    assert installed == ["aot_nice"], "torch's own have no probe, and nobody else was asked for"


def test_debug_backends_are_installed_ones_too(monkeypatch):
    asked = []
    monkeypatch.setattr(aot_registry, "list_backends", lambda exclude_tags: asked.append(exclude_tags) or [])
    choose_contenders()
    assert set(asked) == {()}


@pytest.mark.parametrize(
    ("wrong", "close"), [("inducto", "inductor"), ("aot_nce", "aot_nice"), ("aot-eager", "aot_eager")]
)
def test_unknown_name(installed, wrong, close):
    with pytest.raises(
        UnknownBackendError, match=f"no backend '{wrong}'. Did you mean .*'{close}'"
    ) as caught:
        check_backend_names(["eager", wrong])
    message = str(caught.value)
    assert "Installed: aot_nice, needs_gpu. Torch's own: aot_eager, " in message
    assert "TESTING_ONLY" not in message
    assert message.endswith("See errors/unknown-backend")


def test_torchs_own_names_are_accepted(installed):
    check_backend_names(["eager", "inductor", "aot_eager", "ts"])


def test_torchs_sources_are_not_read_for_our_own_names(installed, monkeypatch):
    monkeypatch.delattr(contenders._compat, "names_of_torch")
    check_backend_names(["eager", "aot_nice"])


def test_eager_is_the_model_itself():
    model = object()
    assert Contender("eager", Availability(True)).compile_model(model) is model
