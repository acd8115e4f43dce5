"""The tests; programs among them, such as the benchmark, find the package here as pytest does by its settings."""

import sys
from pathlib import Path

SOURCE = str(Path(__file__).parents[1] / "app")
if SOURCE not in sys.path:
    sys.path.insert(0, SOURCE)
