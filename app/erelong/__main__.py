"""Lets `python -m erelong` run the command line."""

import sys

from erelong import init


def main() -> int:
    return init.run(_command)


def _command() -> int:
    try:
        from erelong import cli  # only where the command runs: its parent, if it gets one, stays small
    except ModuleNotFoundError as error:
        print(f"erelong: {error.name} is not installed; run: pip install 'erelong[server]'", file=sys.stderr)  # noqa: T201
        return 78
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
