"""The command line: `erelong <command>`."""
