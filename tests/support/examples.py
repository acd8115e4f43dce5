"""How many examples property tests try: the usual number, times ERELONG_EXAMPLES of the environment."""

from __future__ import annotations

import os

TIMES = int(os.environ.get("ERELONG_EXAMPLES", "1"))


def examples(usual: int) -> int:
    return usual * TIMES
