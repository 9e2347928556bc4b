"""Static parts of K, each summed on its own: ((start, stop), ...)."""

from __future__ import annotations

Ranges = tuple[tuple[int, int], ...]
