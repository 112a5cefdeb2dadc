from __future__ import annotations

import pytest

pytest_plugins = ["aot_core.testing.fixtures"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the conformance kit last.

    Its second derivatives leave gradients and their graph referring to each other, which Python's collector does
    not see through, and other tests count all captured graphs of the process.
    """
    items.sort(key=lambda item: item.path.stem == "test_conformance")
