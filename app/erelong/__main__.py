"""Lets `python -m erelong` run the command line."""

import sys

from erelong.cli import pid1


def main() -> int:
    return pid1.run(_command)


def _command() -> int:
    try:
        from erelong.cli import parser  # imported in the child only, so a pid 1 parent stays small
    except ModuleNotFoundError as error:
        print(f"erelong: {error.name} is not installed; run: pip install 'erelong[server]'", file=sys.stderr)  # noqa: T201
        return 78
    return parser.main()


if __name__ == "__main__":
    sys.exit(main())
