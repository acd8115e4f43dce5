"""Lets `python -m app` run the command line in a checkout without installation."""

import sys
from pathlib import Path

sys.modules.pop("app", None)  # this folder is not a package, and a package of the user's may be called app
sys.path.insert(0, str(Path(__file__).parent))

from erelong.__main__ import main  # noqa: E402 - needs the path above

sys.exit(main())
