"""Lets `python -m erelong` run the command line."""

import sys

from erelong.cli import pid1


def main() -> int:
    try:
        return pid1.run(_command)
    except KeyboardInterrupt:  # before the command line could catch it
        return 130


def _command() -> int:
    from erelong.cli import commands  # imported in the child only, so a pid 1 parent stays small

    return commands.main()


if __name__ == "__main__":
    sys.exit(main())
