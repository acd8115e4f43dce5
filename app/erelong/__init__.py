"""erelong: a delayed-task service. POST a job with a time; it runs then, and you can always read its outcome."""

from erelong.attempt import Attempt, GiveUp, RetryAfter
from erelong.version import VERSION

__version__ = VERSION

__all__ = ["Attempt", "GiveUp", "RetryAfter", "__version__"]
