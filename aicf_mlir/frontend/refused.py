"""Why a row of the table does not express a call."""

from __future__ import annotations


class Refused(Exception):
    """A row cannot express these arguments, and why; torch's decomposition of the op may still do."""


class Forbidden(Refused):
    """An op that no decomposition may replace: it would change the computation or the learning of the step."""
