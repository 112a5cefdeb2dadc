"""Nothing but a set of requirements: installing ``aot-all`` installs every package of the family."""

from __future__ import annotations

from aot_all.__about__ import __version__

__all__ = ["__version__"]
