"""Only ``_compat.py`` names what is private in torch; a sibling's private names are used by nobody."""

from __future__ import annotations

import pytest
from packaging.utils import canonicalize_name

from dotted_names import is_private, uses
from repository import MODULES, NAMES, PACKAGES, ROOT

BREAKS_THE_RULE = [
    "import torch._dynamo",
    "import torch._inductor.config as config",
    "from torch._dynamo import config",
    "from torch import _C",
    "from torch.fx._lazy_graph_module import _LazyGraphModule as Lazy",
    "import torch\ntorch._C._is_nice()",
    "import torch as t\ndef f():\n    return t.fx._symbolic_trace",
    "from torch import fx\nfx._compatibility.compatibility",
    "import torch\ngetattr(torch, '_dynamo')",
    "import importlib\nimportlib.import_module('torch._dynamo')",
    "if False:\n    import torch._functorch",
]
KEEPS_THE_RULE = [
    "import torch\ntorch.__version__",
    "from torch.fx import Graph as _Graph\n_Graph.nodes",
    '"""Unlike torch._dynamo, this is public."""',
    "self = object()\nself._torch",
    "import torchvision._internally",
    "message = 'see torch._dynamo for more'",
]


def private_uses(source: str, roots: set[str]) -> list[str]:
    return [f"{use.line}: {use.name}" for use in uses(source, roots) if is_private(use.name)]


@pytest.mark.parametrize("source", BREAKS_THE_RULE)
def test_a_private_name_is_seen(source):
    assert private_uses(source, {"torch"})


@pytest.mark.parametrize("source", KEEPS_THE_RULE)
def test_a_public_name_is_not_reported(source):
    assert private_uses(source, {"torch"}) == []


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_only_compat_names_private_torch(package):
    found = [
        f"{path.relative_to(ROOT)}:{use}"
        for path in package.python_files("src")
        if path != package.source / "_compat.py"
        for use in private_uses(path.read_text(encoding="utf-8"), {"torch"})
    ]
    assert found == [], "Move these into the package's _compat.py, behind a name that says what it is for."


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_siblings_are_used_by_public_names(package):
    others = MODULES - {package.module}
    found = [
        f"{path.relative_to(ROOT)}:{use}"
        for path in package.python_files("src", "tests")
        for use in private_uses(path.read_text(encoding="utf-8"), others)
    ]
    assert found == [], "Use a public name of the sibling, or make one there: a release may change the rest."


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_imported_siblings_are_required(package):
    """Otherwise the package works in this repository and not where it is installed alone."""
    required = {canonicalize_name(requirement.name) for requirement in package.requirements} & NAMES
    imported = {
        use.name.split(".")[0].replace("_", "-")
        for path in package.python_files("src")
        for use in uses(path.read_text(encoding="utf-8"), MODULES - {package.module})
    }
    assert imported <= required
