"""The number of examples in property tests: the default times ERELONG_EXAMPLES from the environment."""

from __future__ import annotations

import os

TIMES = int(os.environ.get("ERELONG_EXAMPLES", "1"))


def examples(usual: int) -> int:
    return usual * TIMES
