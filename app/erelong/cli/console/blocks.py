"""Bars of eighths of a character."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_ACROSS: Final = " ▏▎▍▌▋▊▉█"
_UP: Final = " ▁▂▃▄▅▆▇█"


def bar(share: float, width: int) -> str:
    """Return a bar from left to right; anything above nothing shows."""
    eighths = 0 if share <= 0 else max(round(min(share, 1.0) * width * 8), 1)
    return "█" * (eighths // 8) + _ACROSS[eighths % 8].strip()


def columns(counts: Sequence[float], height: int = 1) -> list[str]:
    """Return lines, from the top down, with one column for each count; the largest fills them."""
    most = max(counts, default=0) or 1
    eighths = [0 if count <= 0 else max(round(count / most * height * 8), 1) for count in counts]
    return ["".join(_UP[min(max(eighth - 8 * level, 0), 8)] for eighth in eighths) for level in reversed(range(height))]
