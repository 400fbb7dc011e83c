"""Awaits requests to a worker's thread."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

from zerolane._zerolane import PendingSet

if TYPE_CHECKING:
    from zerolane._zerolane import Pending

_T = TypeVar("_T")


class _Bell:
    """Wakes the futures of one event loop, which owns it; it has no reference to the loop."""

    def __init__(self) -> None:
        self.over = PendingSet()
        self.waiting: dict[int, asyncio.Future[None]] = {}
        self.tickets = itertools.count()

    def heard(self) -> None:
        """Resolves the futures of finished requests."""
        for ticket in self.over.poll_batch():
            future = self.waiting.pop(ticket, None)
            if future is not None and not future.done():
                future.set_result(None)


_bells: WeakKeyDictionary[asyncio.AbstractEventLoop, _Bell] = WeakKeyDictionary()


def _bell() -> _Bell:
    loop = asyncio.get_running_loop()
    bell = _bells.get(loop)
    if bell is None:
        bell = _bells[loop] = _Bell()
        loop.add_reader(bell.over.fileno(), bell.heard)
    return bell


async def waited(pending: Pending[_T]) -> _T:
    """Awaits the result of ``pending``. Cancelling it cancels ``pending``."""
    bell = _bell()
    ticket = next(bell.tickets)
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    bell.waiting[ticket] = future
    try:
        if not pending.done():
            bell.over.add(pending, ticket)
            await future
    except asyncio.CancelledError:
        pending.cancel()
        raise
    finally:
        bell.waiting.pop(ticket, None)
    return pending.wait()
