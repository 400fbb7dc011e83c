"""Defines the rights of a peer."""

import enum


class Rights(enum.IntFlag):
    """Rights of a peer to exported memory; combine with ``|``."""

    NONE = 0
    READ = 1
    """``get``."""
    WRITE = 2
    """``put``."""
    ATOMIC = 4
    """``fetch_add`` and the like."""
    ALL = 7
