"""Moves memory between machines over ordinary Ethernet.

Data sent from a buffer (bytes, bytearray, memoryview, mmap, numpy array, ...) lands in the buffer
posted for it; only the kernel copies it on the way::

    # one process
    with zerolane.Endpoint("127.0.0.1:7411") as endpoint:
        with endpoint.accept() as connection:
            length = connection.recv_into(array)

    # another
    with zerolane.connect("127.0.0.1:7411") as connection:
        connection.send(array)

A buffer in use cannot be resized, and must not be changed. The package does not detect such a
change, or a peer's write to memory that Python reads: the bytes are shared, and a read during a
write sees some of both.
"""

from zerolane._errors import (
    Cancelled,
    CastFailed,
    Closed,
    ConnectionEnded,
    ConnectTimeout,
    CopyRefused,
    Denied,
    Error,
    Finished,
    MemoryFault,
    MessageTooLarge,
    OutOfBounds,
    PathTooNarrow,
    PeerDead,
    ProtocolError,
    QueueFull,
    Refused,
    Rejected,
    RequestFailed,
    Revoked,
    TimedOut,
    UnknownRegion,
    Untrusted,
)
from zerolane._rights import Rights
from zerolane._zerolane import (
    Account,
    CastOutcome,
    CastReceiver,
    Completion,
    CompletionQueue,
    Connection,
    ConnectionHandle,
    Endpoint,
    EndpointHandle,
    EthernetDevice,
    Event,
    ExportedRegion,
    FetchOp,
    FileClient,
    FileStatus,
    FileUpload,
    HostOutcome,
    Incoming,
    Key,
    Listener,
    Options,
    Path,
    Pending,
    PendingSet,
    Pieces,
    ReceivePool,
    Requests,
    Worker,
    WorkerThread,
    background,
    cast,
    connect,
)

__all__ = [
    "Account",
    "Cancelled",
    "CastFailed",
    "CastOutcome",
    "CastReceiver",
    "Closed",
    "Completion",
    "CompletionQueue",
    "ConnectTimeout",
    "Connection",
    "ConnectionEnded",
    "ConnectionHandle",
    "CopyRefused",
    "Denied",
    "Endpoint",
    "EndpointHandle",
    "Error",
    "EthernetDevice",
    "Event",
    "ExportedRegion",
    "FetchOp",
    "FileClient",
    "FileStatus",
    "FileUpload",
    "Finished",
    "HostOutcome",
    "Incoming",
    "Key",
    "Listener",
    "MemoryFault",
    "MessageTooLarge",
    "Options",
    "OutOfBounds",
    "Path",
    "PathTooNarrow",
    "PeerDead",
    "Pending",
    "PendingSet",
    "Pieces",
    "ProtocolError",
    "QueueFull",
    "ReceivePool",
    "Refused",
    "Rejected",
    "RequestFailed",
    "Requests",
    "Revoked",
    "Rights",
    "TimedOut",
    "UnknownRegion",
    "Untrusted",
    "Worker",
    "WorkerThread",
    "background",
    "cast",
    "connect",
]
