"""The exceptions of this package.

Errors of the operating system are ``OSError``, and what did not happen in time is ``TimeoutError``;
all else is below ``Error``::

    Error
    +-- ConnectionEnded (also ConnectionError): the connection is over
    |   +-- ConnectTimeout (also TimeoutError)
    |   +-- Rejected (also ConnectionRefusedError)
    |   +-- Untrusted
    |   +-- Closed
    |   +-- PeerDead
    |   +-- ProtocolError
    |   +-- CopyRefused
    +-- RequestFailed: this request failed, and the connection goes on
    |   +-- Cancelled
    |   +-- MessageTooLarge
    |   +-- Refused
    |   +-- MemoryFault
    |   +-- OutOfBounds
    |   +-- Denied
    |   +-- Revoked
    |   +-- UnknownRegion
    |   +-- TimedOut (also TimeoutError)
    |   +-- Finished (also EOFError)
    +-- QueueFull: nothing was posted
    +-- CastFailed: a cast failed, at this end or at some of its hosts
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zerolane._zerolane import CastOutcome


class Error(Exception):
    """An error of Zerolane."""


class ConnectionEnded(Error, ConnectionError):
    """The connection is over, and all its requests with it."""


class ConnectTimeout(ConnectionEnded, TimeoutError):
    """No answer came within the connect timeout."""


class Rejected(ConnectionEnded, ConnectionRefusedError):
    """The peer rejected the connection; the text says why."""


class Untrusted(ConnectionEnded):
    """The peer is not one of those to be spoken to; the text has its key."""


class Closed(ConnectionEnded):
    """The connection was closed, by this end or the peer; or what was used belongs to the process
    that this one was forked from."""


class PeerDead(ConnectionEnded):
    """The peer does not answer any more, or nothing listens there."""


class ProtocolError(ConnectionEnded):
    """The peer broke the protocol."""


class CopyRefused(ConnectionEnded):
    """Strict mode: payload would have had to be copied in user space."""


class RequestFailed(Error):
    """One request failed; the connection goes on."""


class Cancelled(RequestFailed):
    """The request was cancelled at this end."""


class MessageTooLarge(RequestFailed):
    """The message is larger than the receive it met; both ends get this."""


class Refused(RequestFailed):
    """The peer cancelled or refused the request; the text says why."""


class MemoryFault(RequestFailed):
    """Memory could not be accessed: a mapped file shrank."""


class OutOfBounds(RequestFailed):
    """The request names bytes outside the peer's memory."""


class Denied(RequestFailed):
    """The peer's memory was exported without the right for that."""


class Revoked(RequestFailed):
    """The memory was revoked by its owner."""


class UnknownRegion(RequestFailed):
    """The peer exports nothing of that name or key, on this connection."""


class TimedOut(RequestFailed, TimeoutError):
    """The call took longer than the timeout of its connection; its request was cancelled."""


class Finished(RequestFailed, EOFError):
    """The peer finished sending, so nothing more comes; or this end did, so nothing can be sent."""


class QueueFull(Error):
    """As many requests as a connection takes are in flight, or as many regions exported: complete,
    or revoke, some first."""


class CastFailed(Error):
    """A cast failed: at this end, or at hosts, which the text names with their reasons."""

    outcome: CastOutcome | None = None
    """What became of each host; None if it failed as a whole, or at a receiver."""
