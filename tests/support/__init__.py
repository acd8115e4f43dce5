"""Fakes and builders that tests share."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The root of the repository, for any working directory."""

SOURCE = ROOT / "app"
"""The folder that holds the package."""
