"""What a peer may do."""

import enum


class Rights(enum.IntFlag):
    """What a peer may do with exported memory; combine with ``|``."""

    NONE = 0
    READ = 1
    """``get``."""
    WRITE = 2
    """``put``."""
    ATOMIC = 4
    """``fetch_add`` and the like."""
    ALL = 7
