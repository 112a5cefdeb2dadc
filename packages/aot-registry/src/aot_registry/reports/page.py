"""One HTML page that needs nothing else: templates, the style sheet in it, nothing fetched, no script."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from aot_registry.__about__ import __version__
from aot_registry.reports.errors import MissingHtmlExtraError

if TYPE_CHECKING:
    import jinja2

__all__ = ["render", "require_jinja"]


def require_jinja() -> None:
    """Check that jinja2 is there.

    Raises:
        MissingHtmlExtraError: it is not.
    """
    try:
        import jinja2  # noqa: F401
    except ImportError as error:
        raise MissingHtmlExtraError(
            f"An HTML page needs jinja2, and importing it failed ({error}). Run: pip install 'aot-registry[html]'."
        ) from error


def render(template: str, **values: Any) -> str:
    """Return a page.

    Args:
        template: Its name in the folder ``templates``.
        values: For the template, which escapes them.

    Raises:
        MissingHtmlExtraError: jinja2 is not installed.
    """
    require_jinja()
    return _environment().get_template(template).render(version=__version__, **values)


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("aot_registry.reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
