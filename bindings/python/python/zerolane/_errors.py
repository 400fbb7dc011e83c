"""Defines the exceptions of this package.

Errors of the operating system are ``OSError``, timeouts are ``TimeoutError``, and all others are
``Error``::

    Error
    +-- ConnectionEnded (also ConnectionError): the connection is over
    |   +-- ConnectTimeout (also TimeoutError)
    |   +-- Rejected (also ConnectionRefusedError)
    |   +-- Untrusted
    |   +-- Closed
    |   +-- PeerDead
    |   +-- PathTooNarrow
    |   +-- ProtocolError
    |   +-- CopyRefused
    +-- RequestFailed: this request failed; the connection stays open
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
    +-- StreamReset (also ConnectionResetError): one stream is over; the connection stays open
    +-- CastFailed: a cast failed, at this end or at some of its hosts
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zerolane._zerolane import CastOutcome


class Error(Exception):
    """An error of Zerolane."""


class ConnectionEnded(Error, ConnectionError):
    """The connection is over, with all its requests."""


class ConnectTimeout(ConnectionEnded, TimeoutError):
    """No answer came within the connect timeout."""


class Rejected(ConnectionEnded, ConnectionRefusedError):
    """The peer rejected the connection; the text has the reason."""


class Untrusted(ConnectionEnded):
    """The peer's key, which the text has, is not trusted."""


class Closed(ConnectionEnded):
    """This end or the peer closed the connection; or the object belongs to the parent of this
    forked process."""


class PeerDead(ConnectionEnded):
    """The peer stopped answering, or nothing listens there."""


class PathTooNarrow(ConnectionEnded):
    """Only short packets reach the peer, not those of 576 bytes over IPv4 (1280 otherwise)."""


class ProtocolError(ConnectionEnded):
    """The peer violated the protocol."""


class CopyRefused(ConnectionEnded):
    """Strict mode: payload would have been copied in user space."""


class RequestFailed(Error):
    """One request failed; the connection stays open."""


class Cancelled(RequestFailed):
    """This end cancelled the request."""


class MessageTooLarge(RequestFailed):
    """The message is larger than its receive; both ends get this."""


class Refused(RequestFailed):
    """The peer cancelled or refused the request; the text has the reason."""


class MemoryFault(RequestFailed):
    """Memory could not be accessed: a mapped file shrank."""


class OutOfBounds(RequestFailed):
    """The request exceeds the peer's memory."""


class Denied(RequestFailed):
    """The peer exported the memory without the necessary right."""


class Revoked(RequestFailed):
    """The owner revoked the memory."""


class UnknownRegion(RequestFailed):
    """The peer exports no memory of that name or key on this connection."""


class TimedOut(RequestFailed, TimeoutError):
    """The call took longer than the connection's timeout; its request was cancelled."""


class Finished(RequestFailed, EOFError):
    """The peer finished sending and nothing more comes; or this end finished and cannot send."""


class QueueFull(Error):
    """The connection has as many requests in flight, or as many regions exported, as it may have:
    take completions, or revoke some, first."""


class StreamReset(Error, ConnectionResetError):
    """One end reset the stream, or the peer refused it; the text has its words. The connection
    stays open."""


class CastFailed(Error):
    """A cast failed at this end, or at hosts, which the text names with their reasons."""

    outcome: CastOutcome | None = None
    """The result of each host; None if the cast failed as a whole, or at a receiver."""
