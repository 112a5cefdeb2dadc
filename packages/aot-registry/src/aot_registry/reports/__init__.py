"""What was measured or explained, to look at: HTML pages, and a trace for trace viewers.

::

    WorkloadResult ──> bench    ┐
    Explanation ─────> explain  ┤──> page (jinja2) ──> one HTML file
                        │       │
                        └> step ┴──> charts ──> svg
    CompileReport ───> chrome_trace ──> JSON

Charts are SVG in the page itself. Importing this package imports neither torch nor jinja2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aot_core import lazy_names

if TYPE_CHECKING:
    from aot_registry.reports.bench import bench_page
    from aot_registry.reports.chrome_trace import chrome_trace
    from aot_registry.reports.explain import explain_page

__all__ = ["bench_page", "chrome_trace", "explain_page"]

__getattr__ = lazy_names(
    __name__,
    {"bench": ("bench_page",), "chrome_trace": ("chrome_trace",), "explain": ("explain_page",)},
)


def __dir__() -> list[str]:
    return __all__
