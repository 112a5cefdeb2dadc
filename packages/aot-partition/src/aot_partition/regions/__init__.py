"""Groups of claimed nodes that run at once, and the graph in which each is one call."""

from __future__ import annotations

from aot_partition.regions.find import find_regions as find_regions
from aot_partition.regions.fuse import fuse_regions as fuse_regions
from aot_partition.regions.region import Region as Region

__all__ = ["Region", "find_regions", "fuse_regions"]
