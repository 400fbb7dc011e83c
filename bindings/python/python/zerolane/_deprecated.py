"""Keeps deprecated names for one release: each warns and calls the new name."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from zerolane._zerolane import Connection, Endpoint, FetchOp, Requests

__all__ = ["warn"]


def warn(old: str, new: str) -> None:
    """Warns that ``old`` is now ``new``, at the caller's caller."""
    message = f"{old} is deprecated, and the next release removes it: use {new}"
    warnings.warn(message, DeprecationWarning, stacklevel=3)


def _renamed(owner: type, old: str, new: str) -> None:
    """Adds ``old`` to ``owner`` as another name of ``new``."""
    is_method = callable(getattr(owner, new))

    def get(self: Any) -> Any:
        warn(f"{owner.__name__}.{old}", new)
        return getattr(self, new)

    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        warn(f"{owner.__name__}.{old}", new)
        return getattr(self, new)(*arguments, **named)

    doc = f"Deprecated: ``{new}``."
    call.__name__, call.__doc__ = old, doc
    setattr(owner, old, call if is_method else property(get, doc=doc))


def _replaced(owner: type) -> Callable[[Callable[..., Any]], None]:
    """Adds the function to ``owner`` as a method."""

    def add(function: Callable[..., Any]) -> None:
        setattr(owner, function.__name__, function)

    return add


_renamed(Endpoint, "address", "local_addr")
_renamed(Endpoint, "key", "public_key")
_renamed(Requests, "peer_address", "peer_addr")
_renamed(Requests, "post_receive", "post_recv")
_renamed(Requests, "post_receive_message", "post_message_recv")
_renamed(Requests, "post_put_pieces", "post_put_vectored")
_renamed(Requests, "post_get_pieces", "post_get_vectored")
_renamed(Connection, "receive_into", "recv_into")
_renamed(Connection, "open", "open_region")


@_replaced(Connection)
def receive_message(self: Connection, payload: Any = None) -> tuple[bytes, int]:
    """Deprecated: ``recv_message``, which returns the memory instead of its length."""
    warn("Connection.receive_message", "recv_message")
    control, memory = self.recv_message(payload)
    return control, 0 if memory is None else memory.nbytes


@_replaced(Requests)
def post_fetch_add(self: Requests, key: Any, offset: int, value: int = 1, **how: Any) -> int:
    """Deprecated: ``post_fetch_op`` with ``FetchOp.add``."""
    warn("Requests.post_fetch_add", "post_fetch_op")
    return self.post_fetch_op(key, offset, FetchOp.add(value), **how)


@_replaced(Requests)
def post_compare_and_swap(
    self: Requests, key: Any, offset: int, expected: int, value: int, **how: Any
) -> int:
    """Deprecated: ``post_fetch_op`` with ``FetchOp.compare_and_swap``."""
    warn("Requests.post_compare_and_swap", "post_fetch_op")
    return self.post_fetch_op(key, offset, FetchOp.compare_and_swap(expected, value), **how)
