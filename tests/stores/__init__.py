"""The contract of every store, by topic, and tests of single stores."""
