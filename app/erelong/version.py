"""The version of erelong."""

VERSION = "0.1.0"
