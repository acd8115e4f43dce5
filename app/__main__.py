"""Lets `python -m app` run the command line."""

import sys

from app import init


def main() -> int:
    return init.run(_command)


def _command() -> int:
    from app import cli  # only where the command runs: its parent, if it gets one, stays small

    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
