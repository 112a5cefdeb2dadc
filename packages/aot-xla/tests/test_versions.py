"""A pair that does not fit is named before anything of it is imported."""

from __future__ import annotations

import importlib.metadata
import pickle
import subprocess
import sys

import pytest

from aot_xla.errors import MismatchedTorchXlaError, MissingTorchXlaError
from aot_xla.info import probe
from aot_xla.versions import INSTALL_PAIR, require_fitting_pair


@pytest.fixture
def installed(monkeypatch):
    """Pretend that these versions are installed."""

    def pretend(**versions):
        def version(name):
            if name not in versions:
                raise importlib.metadata.PackageNotFoundError(name)
            return versions[name]

        monkeypatch.setattr(importlib.metadata, "version", version)

    return pretend


@pytest.mark.parametrize("torch", ["2.9.0", "2.9.1", "2.9.1+cu128"])
def test_one_minor_version_fits(installed, torch):
    installed(torch=torch, torch_xla="2.9.0")
    assert require_fitting_pair() == f"torch {torch}, torch_xla 2.9.0"


@pytest.mark.parametrize("torch", ["2.13.0", None])
def test_without_torch_xla_the_pair_is_named(installed, torch):
    installed(**({"torch": torch} if torch else {}))
    with pytest.raises(MissingTorchXlaError, match="not installed") as caught:
        require_fitting_pair()
    assert INSTALL_PAIR in str(caught.value)
    assert isinstance(caught.value, ImportError)


@pytest.mark.parametrize(
    ("torch", "torch_xla"),
    [("2.10.0", "2.9.0"), ("2.13.0", "2.9.0"), ("2.9.1", "2.8.1"), ("2.90.0", "2.9.0")],
)
def test_another_minor_version_does_not_fit(installed, torch, torch_xla):
    installed(torch=torch, torch_xla=torch_xla)
    with pytest.raises(MismatchedTorchXlaError) as caught:
        require_fitting_pair()
    for part in (torch, torch_xla, INSTALL_PAIR, "undefined symbol"):
        assert part in str(caught.value)


def test_torch_xla_without_torch_does_not_fit(installed):
    installed(torch_xla="2.9.0")
    with pytest.raises(MismatchedTorchXlaError):
        require_fitting_pair()


@pytest.mark.parametrize("versions", [{"torch": "2.13.0"}, {"torch": "2.10.0", "torch_xla": "2.9.0"}])
def test_the_probe_answers_with_the_remedy(installed, versions):
    installed(**versions)
    answer = probe()
    assert not answer.usable
    assert answer.remedy == f"{INSTALL_PAIR}."


def test_the_probe_of_a_wrong_pair_imports_neither():
    """What it has to spare people is the undefined symbol, and torch takes seconds."""
    program = (
        "import importlib.metadata, sys\n"
        "importlib.metadata.version = {'torch': '2.10.0', 'torch_xla': '2.9.0'}.__getitem__\n"
        "from aot_xla.info import probe\n"
        "assert not probe().usable\n"
        "sys.exit(', '.join(sys.modules.keys() & {'torch', 'torch_xla', '_XLAC'}) or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_errors_survive_pickling():
    error = MissingTorchXlaError("no torch_xla.")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
