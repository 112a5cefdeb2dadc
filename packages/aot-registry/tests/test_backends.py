from __future__ import annotations

import logging

import pytest
from fake_site import GOOD_BACKEND, FakeSite

import aot_registry
from aot_registry import BACKENDS, BrokenBackendError, UnknownBackendError


def install_some(site: FakeSite) -> None:
    site.install_good("fake-a", "alpha", tags=("training", "cpu"))
    site.install_good("fake-b", "beta", tags=("debug",))
    site.install("fake-c", torch={"gamma": "fake_c:backend"}, modules={"fake_c.py": GOOD_BACKEND})
    site.install(
        "fake-d",
        torch={"delta": "fake_d:backend"},
        aot={"delta": "fake_d:NOTHING"},
        modules={"fake_d.py": "raise ImportError('libgone.so.1: cannot open shared object file')"},
    )


def test_list_backends_excludes_by_tag(site: FakeSite) -> None:
    install_some(site)
    assert aot_registry.list_backends() == ["alpha", "delta", "gamma"]
    assert aot_registry.list_backends(exclude_tags=("cpu",)) == ["beta", "delta", "gamma"]
    for everything in (None, ()):
        assert aot_registry.list_backends(exclude_tags=everything) == ["alpha", "beta", "delta", "gamma"]


def test_a_string_of_tags_is_refused(site: FakeSite) -> None:
    with pytest.raises(TypeError, match="collection of tags, got the string 'debug'"):
        aot_registry.list_backends(exclude_tags="debug")


def test_get_backend_loads(site: FakeSite) -> None:
    install_some(site)
    backend = aot_registry.get_backend("beta")
    assert backend.__module__ == "fake_b_module" and backend.__name__ == "backend"
    assert aot_registry.get_backend("beta") is backend


def test_get_backend_of_a_description_alone(site: FakeSite) -> None:
    site.install(
        "info-only",
        aot={"lone": "info_only:INFO"},
        modules={
            "info_only.py": "from aot_core.protocol import BackendInfo\n"
            f"INFO = BackendInfo('lone', 'info_only:backend', '')\n{GOOD_BACKEND}"
        },
    )
    assert aot_registry.get_backend("lone").__name__ == "backend"


def test_unknown_backend(site: FakeSite) -> None:
    install_some(site)
    with pytest.raises(UnknownBackendError) as caught:
        aot_registry.get_backend("alfa")
    assert str(caught.value) == (
        "No backend is called 'alfa'. Did you mean 'alpha'? Known are: alpha, beta, delta, gamma. "
        "`aot list --all` shows who declares what. See errors/unknown-backend"
    )
    assert isinstance(caught.value, KeyError)
    with pytest.raises(UnknownBackendError):
        aot_registry.probe("alfa")


def test_broken_backend_names_entry_point_distribution_and_remedy(site: FakeSite) -> None:
    install_some(site)
    with pytest.raises(BrokenBackendError) as caught:
        aot_registry.get_backend("delta")
    message = str(caught.value)
    assert "entry point 'delta = fake_d:backend' of fake-d 1.0" in message
    assert "[missing-library]" in message and "Install the package that ships libgone.so.1" in message
    assert message.endswith("See errors/broken-backend")
    assert isinstance(caught.value, ImportError) and isinstance(caught.value.__cause__, ImportError)


def test_sys_exit_on_import_does_not_end_this_process(site: FakeSite) -> None:
    site.install("exits", torch={"exits": "exits:backend"}, modules={"exits.py": "import sys; sys.exit(3)"})
    with pytest.raises(BrokenBackendError, match=r"sys\.exit\(3\)"):
        aot_registry.get_backend("exits")


@pytest.mark.parametrize("value", ["no-identifier:x", "a:b:c", "a: ", "module:"])
def test_malformed_reference(site: FakeSite, value: str) -> None:
    site.install("fake", torch={"one": value})
    with pytest.raises(BrokenBackendError, match=r"broken-metadata.*expected 'module:attribute'"):
        aot_registry.get_backend("one")


def test_extras_in_an_entry_point_are_ignored(site: FakeSite) -> None:
    site.install("fake", torch={"one": "fake_x : backend [extra]"}, modules={"fake_x.py": GOOD_BACKEND})
    assert callable(aot_registry.get_backend("one"))


def test_of_two_distributions_the_first_on_the_path_wins(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    second = FakeSite(site.folder.parent / "second")
    second.install_good("aaa", "contested")
    site.install_good("zzz", "contested")
    monkeypatch.setattr(sys, "path", [*sys.path, str(second.folder)])
    assert aot_registry.get_backend("contested").__module__ == "zzz_module"


def test_probe(site: FakeSite) -> None:
    install_some(site)
    assert aot_registry.probe("alpha").usable
    answer = aot_registry.probe("delta")
    assert not answer.usable
    assert "libgone.so.1" in answer.reason and "libgone.so.1" in answer.remedy


def test_load_all_leaves_out_what_is_not_usable(site: FakeSite, caplog: pytest.LogCaptureFixture) -> None:
    install_some(site)
    site.install(
        "crashing",
        torch={"crash": "crashing:backend"},
        modules={"crashing.py": "import os, signal\nos.kill(os.getpid(), signal.SIGABRT)"},
    )
    with caplog.at_level(logging.WARNING, "aot_registry"):
        backends = aot_registry.load_all()
    assert list(backends) == ["alpha", "beta", "gamma"]
    assert backends["alpha"] is aot_registry.get_backend("alpha")
    logged = [record.getMessage() for record in caplog.records]
    assert len(logged) == 2
    assert any("crash is left out" in line and "SIGABRT" in line for line in logged)
    assert any("delta is left out" in line for line in logged)


def test_mapping_is_lazy_and_read_only(site: FakeSite) -> None:
    import sys

    install_some(site)
    assert list(BACKENDS) == ["alpha", "beta", "delta", "gamma"]
    assert len(BACKENDS) == 4 and "alpha" in BACKENDS and "alfa" not in BACKENDS
    assert repr(BACKENDS) == "BACKENDS(alpha, beta, delta, gamma)"
    assert "fake_a_module" not in sys.modules
    assert BACKENDS["alpha"] is aot_registry.get_backend("alpha")
    assert BACKENDS.get("alfa") is None
    with pytest.raises(UnknownBackendError):
        BACKENDS["alfa"]
    with pytest.raises(TypeError):
        BACKENDS["alpha"] = print  # type: ignore[index]


def test_nothing_installed(site: FakeSite) -> None:
    assert aot_registry.list_backends() == []
    with pytest.raises(UnknownBackendError, match="No installed distribution declares any"):
        aot_registry.get_backend("alpha")
