"""Asks a Sluice server whether requests may pass.

``Sluice`` is for threads, ``AsyncSluice`` for asyncio. ``sluice.wsgi``, ``sluice.asgi`` and ``sluice.django`` have
middleware. ``Limiter`` is a token bucket in this process, to pace one's own requests.
"""

from ._async import AsyncSluice
from ._core import FailureMode, Observation
from ._limiter import Limiter
from ._sync import Sluice
from ._types import Check, Decision, ErrorKind, FieldError, Recorded, Settlement, SluiceError, Source, Tier
from ._version import __version__

__all__ = [
    "AsyncSluice",
    "Check",
    "Decision",
    "ErrorKind",
    "FailureMode",
    "FieldError",
    "Limiter",
    "Observation",
    "Recorded",
    "Settlement",
    "Sluice",
    "SluiceError",
    "Source",
    "Tier",
    "__version__",
]
