"""Memory moved between machines over ordinary Ethernet: data lands once, in its final place.

What is sent from a buffer (bytes, bytearray, memoryview, mmap, numpy array, ...) lands in the
buffer posted for it, and nothing in between copies it but the kernel::

    # one process
    with zerolane.Endpoint("127.0.0.1:7411") as endpoint:
        with endpoint.accept() as connection:
            length = connection.receive_into(array)

    # another
    with zerolane.connect("127.0.0.1:7411") as connection:
        connection.send(array)

A buffer in use stays exported: it cannot be resized, and should not be changed. Whether Python
changes it nevertheless, or a peer writes memory that Python reads, is not found out: the bytes are
shared, and who reads while another writes sees some of both.
"""

from zerolane._errors import (
    Cancelled,
    Closed,
    ConnectionEnded,
    ConnectTimeout,
    CopyRefused,
    Error,
    MemoryFault,
    MessageTooLarge,
    PeerDead,
    ProtocolError,
    QueueFull,
    Refused,
    Rejected,
    RequestFailed,
)
from zerolane._zerolane import (
    Account,
    Completion,
    Connection,
    Endpoint,
    Options,
    connect,
)

__all__ = [
    "Account",
    "Cancelled",
    "Closed",
    "Completion",
    "ConnectTimeout",
    "Connection",
    "ConnectionEnded",
    "CopyRefused",
    "Endpoint",
    "Error",
    "MemoryFault",
    "MessageTooLarge",
    "Options",
    "PeerDead",
    "ProtocolError",
    "QueueFull",
    "Refused",
    "Rejected",
    "RequestFailed",
    "connect",
]
