"""Awaits requests to a worker's thread, and other news that come as tokens of a PendingSet."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

from zerolane._zerolane import PendingSet

if TYPE_CHECKING:
    from collections.abc import Callable

    from zerolane._zerolane import Pending

_T = TypeVar("_T")


class Bell:
    """Makes the calls of one event loop, which owns it; it has no reference to the loop."""

    def __init__(self) -> None:
        self.news = PendingSet()
        self._calls: dict[int, Callable[[], object]] = {}
        self._tokens = itertools.count()

    def token(self, call: Callable[[], object]) -> int:
        """Makes a token for ``news``: when it has it, the event loop calls ``call``, once."""
        token = next(self._tokens)
        self._calls[token] = call
        return token

    def forget(self, token: int) -> None:
        """Does not call for this token."""
        self._calls.pop(token, None)

    def heard(self) -> None:
        """Makes the calls of tokens that have come."""
        for token in self.news.poll_batch():
            call = self._calls.pop(token, None)
            if call is not None:
                call()


_bells: WeakKeyDictionary[asyncio.AbstractEventLoop, Bell] = WeakKeyDictionary()


def bell() -> Bell:
    """The bell of the running event loop."""
    loop = asyncio.get_running_loop()
    own = _bells.get(loop)
    if own is None:
        own = _bells[loop] = Bell()
        loop.add_reader(own.news.fileno(), own.heard)
    return own


def settle(future: asyncio.Future[None]) -> None:
    """Resolves ``future``, unless it is done."""
    if not future.done():
        future.set_result(None)


async def waited(pending: Pending[_T]) -> _T:
    """Awaits the result of ``pending``. Cancelling it cancels ``pending``."""
    own = bell()
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    token = own.token(lambda: settle(future))
    try:
        if not pending.done():
            own.news.add(pending, token)
            await future
    except asyncio.CancelledError:
        pending.cancel()
        raise
    finally:
        own.forget(token)
    return pending.wait()
