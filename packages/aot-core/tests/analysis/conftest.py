from __future__ import annotations

from collections.abc import Iterator

import hypothesis
import pytest

from aot_core import analysis

hypothesis.settings.register_profile(
    # One compile takes a good part of a second, and its time says nothing.
    "aot",
    deadline=None,
    max_examples=25,
    print_blob=True,
    suppress_health_check=[
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.filter_too_much,
        # The only fixtures reset state, which may as well be reset once for all examples.
        hypothesis.HealthCheck.function_scoped_fixture,
    ],
)
hypothesis.settings.load_profile("aot")


@pytest.fixture
def installed() -> Iterator[None]:
    """Our analyses under torch's AOTAutograd for the length of the test."""
    with analysis.install():
        yield


@pytest.fixture(
    params=[
        pytest.param(
            "stock", marks=pytest.mark.xfail(reason="a defect of torch's own analysis", strict=False)
        ),
        "installed",
    ]
)
def stock_or_installed(request: pytest.FixtureRequest) -> Iterator[str]:
    """The test once with torch's own analyses, where it may fail, and once with ours."""
    if request.param == "stock":
        yield "stock"
        return
    with analysis.install():
        yield "installed"


@pytest.fixture
def metadata_checked() -> Iterator[None]:
    """Have torch collect the metadata again after merging and compare it with what the analyses returned."""
    from torch._dynamo import config as dynamo_config
    from torch._functorch import config

    # A hit of the cache of fake tensors gives views another offset than a miss does, and the comparison sees
    # it (torch 2.13).
    uncached = dynamo_config.patch(fake_tensor_cache_enabled=False)
    with config.patch(debug_assert=True, enable_autograd_cache=False), uncached:
        yield
