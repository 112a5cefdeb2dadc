"""Bytes and seconds for people."""

from __future__ import annotations

__all__ = ["readable_bytes", "readable_seconds"]

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def readable_bytes(count: int) -> str:
    """Return ``1536`` as ``"1.5 KiB"``."""
    power = min(max(0, count.bit_length() - 1) // 10, len(UNITS) - 1)
    return f"{count} B" if power == 0 else f"{count / 1024**power:.1f} {UNITS[power]}"


def readable_seconds(seconds: float) -> str:
    """Return ``0.0123`` as ``"12.3 ms"``."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1e3 * seconds:.1f} ms"
