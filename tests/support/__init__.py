"""Fakes and builders that tests share."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The root of the repository, whatever the working directory."""
