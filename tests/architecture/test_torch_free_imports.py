"""Listing backends costs no import of torch: checked by importing in a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys

import pytest

from repository import PACKAGES

# Notes every attempt, so that an import inside try/except is seen even where torch is not installed.
PROBE = """
import importlib, sys

class Watch:
    attempts = []

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "numpy"):
            self.attempts.append(name)

sys.meta_path.insert(0, Watch())
importlib.import_module(sys.argv[1])
heavy = {name.partition(".")[0] for name in sys.modules} & {"torch", "numpy"}
sys.exit(f"{sys.argv[1]} imports {Watch.attempts or heavy}" if Watch.attempts or heavy else 0)
"""

INFO_MODULES = {
    reference.partition(":")[0]
    for package in PACKAGES
    for reference in package.entry_points("aot_backends").values()
}
MODULES = sorted({"aot_core.protocol"} | {package.module for package in PACKAGES} | INFO_MODULES)


def import_alone(module: str, **options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROBE, module], capture_output=True, text=True, timeout=60, **options
    )


@pytest.mark.parametrize("module", MODULES)
def test_import_is_free_of_torch(module):
    result = import_alone(module)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    "source",
    ["import torch", "import torch.fx", "try:\n    import torch\nexcept ImportError:\n    torch = None"],
)
def test_an_import_of_torch_is_seen(source, tmp_path):
    (tmp_path / "heavy.py").write_text(source)
    result = import_alone("heavy", cwd=str(tmp_path))
    assert result.returncode != 0
    assert "torch" in result.stderr
