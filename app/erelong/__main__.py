"""Lets `python -m erelong` run the command line."""

import sys

from erelong.cli import pid1


def main() -> int:
    return pid1.run(_command)


def _command() -> int:
    from erelong.cli import commands  # imported in the child only, so a pid 1 parent stays small

    return commands.main()


if __name__ == "__main__":
    sys.exit(main())
