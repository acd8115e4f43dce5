"""Lets `python -m app` run the command line in a checkout, where nothing is installed."""

import sys
from pathlib import Path

sys.modules.pop("app", None)  # this folder is no package: a package of the user's may have that name
sys.path.insert(0, str(Path(__file__).parent))

from erelong.__main__ import main  # noqa: E402 - found only now

sys.exit(main())
