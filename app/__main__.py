"""Lets `python -m app` run the command line."""

import sys

from app import init


def main() -> int:
    from app.cli import main  # only where the command runs: its parent, if it gets one, stays small

    return main()


if __name__ == "__main__":
    sys.exit(init.run(main))
