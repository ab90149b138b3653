"""The reason why a row of the table does not express a call."""

from __future__ import annotations


class Refused(Exception):
    """A row cannot express these arguments, for a reason; torch's decomposition of the op may still work."""


class Forbidden(Refused):
    """An op that no decomposition may replace: it would change the computation or the learning of the step."""
