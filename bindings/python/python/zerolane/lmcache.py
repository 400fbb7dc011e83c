"""Gives LMCache the memory of other hosts as a second level of its cache.

    --l2-adapter '{"type": "plugin", "module_path": "zerolane.lmcache", "class_name": "L2Adapter",
                   "adapter_params": {"hosts": ["node1:9187", "node2:9187"]}}'

The hosts run ``python -m zerolane.cache``. Parameters are those of ``zerolane.cache.Cache``, with
``identity``, ``trust``, ``plain``, ``authenticated`` and ``lane`` of ``zerolane.Options``. The
hosts evict objects by themselves; objects that LMCache locked stay.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from zerolane import Options
from zerolane.cache import KEY_BYTES, Cache

__all__ = ["L2Adapter"]  # noqa: F822

_log = logging.getLogger(__name__)
_OPTIONS = ("identity", "trust", "plain", "authenticated", "lane")


def _key(key: Any) -> bytes:
    """The key of an object, from all that distinguishes LMCache's."""
    texts = (key.model_name, key.kv_rank, getattr(key, "object_group_id", 0))
    named = repr((*texts, getattr(key, "cache_salt", ""), bytes(key.chunk_hash)))
    return hashlib.blake2b(named.encode(), digest_size=KEY_BYTES).digest()


class _Tasks:
    """The tasks of one kind: one after another, in a thread, with results to fetch and an eventfd.

    The descriptor of each kind is LMCache's to wait for.
    """

    def __init__(self, name: str) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread = ThreadPoolExecutor(1, f"zerolane-{name}")
        self._results: dict[int, Any] = {}
        self._lock = threading.Lock()

    def submit(self, number: int, work: Callable[[], Any], failed: Callable[[], Any]) -> int:
        def run() -> None:
            try:
                result = work()
            except Exception:
                _log.exception("a task of the cache failed")
                result = failed()
            with self._lock:
                self._results[number] = result
            os.eventfd_write(self.descriptor, 1)

        self._thread.submit(run)
        return number

    def do(self, work: Callable[[], Any]) -> None:
        """Does something without a result."""

        def run() -> None:
            try:
                work()
            except Exception:
                _log.exception("a task of the cache failed")

        self._thread.submit(run)

    def take(self, number: int) -> Any:
        with self._lock:
            return self._results.pop(number, None)

    def take_all(self) -> dict[int, Any]:
        with self._lock:
            results, self._results = self._results, {}
        return results

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)
        os.close(self.descriptor)


class _Adapter:
    """LMCache's interface, without its class and types, which this module does not import.

    ``make_bitmap`` makes one of a length; ``make_result`` a store's result, of success and bytes.
    """

    make_bitmap: Callable[[int], Any]
    make_result: Callable[[bool, int], Any]

    def __init__(self, adapter_params: dict[str, Any], **_: Any) -> None:
        super().__init__()
        given = dict(adapter_params)
        options = {it: given.pop(it) for it in _OPTIONS if it in given}
        if options:
            options |= {"connect_timeout": 2.0, "idle_timeout": 5.0, "keep_alive": True}
            given["options"] = Options(**options)
        self._cache = Cache(**given)
        self._stores, self._lookups, self._loads = (
            _Tasks(it) for it in ("store", "lookup", "load")
        )
        self._number = 0
        self._numbers = threading.Lock()

    def _next(self) -> int:
        with self._numbers:
            self._number += 1
            return self._number

    def get_store_event_fd(self) -> int:
        return self._stores.descriptor

    def get_lookup_and_lock_event_fd(self) -> int:
        return self._lookups.descriptor

    def get_load_event_fd(self) -> int:
        return self._loads.descriptor

    def submit_store_task(self, keys: list[Any], objects: list[Any]) -> int:
        def store() -> Any:
            buffers = [it.byte_array for it in objects]
            stored = self._cache.put(
                [(_key(it), buffer) for it, buffer in zip(keys, buffers, strict=True)]
            )
            sizes = [len(memoryview(it).cast("B")) for it in buffers]
            kept = sum(size for size, is_stored in zip(sizes, stored, strict=True) if is_stored)
            return self.make_result(all(stored), kept)

        return self._stores.submit(self._next(), store, lambda: self.make_result(False, 0))

    def pop_completed_store_tasks(self) -> dict[int, Any]:
        return self._stores.take_all()

    def submit_lookup_and_lock_task(self, keys: list[Any], *_: Any, **__: Any) -> int:
        def find() -> Any:
            return self._bitmap(self._cache.pin([_key(it) for it in keys]))

        return self._lookups.submit(self._next(), find, lambda: self.make_bitmap(len(keys)))

    def query_lookup_and_lock_result(self, task_id: int) -> Any:
        return self._lookups.take(task_id)

    def submit_unlock(self, keys: list[Any]) -> None:
        self._lookups.do(lambda: self._cache.unpin([_key(it) for it in keys]))

    def submit_load_task(self, keys: list[Any], objects: list[Any]) -> int:
        def load() -> Any:
            pairs = zip(keys, objects, strict=True)
            return self._bitmap(self._cache.get([(_key(key), it.byte_array) for key, it in pairs]))

        return self._loads.submit(self._next(), load, lambda: self.make_bitmap(len(keys)))

    def query_load_result(self, task_id: int) -> Any:
        return self._loads.take(task_id)

    def delete(self, keys: list[Any]) -> None:
        self._cache.delete([_key(it) for it in keys])

    def report_status(self) -> dict[str, Any]:
        hosts = self._cache.capacities()
        is_healthy = all(it is not None for it in hosts.values())
        return {"is_healthy": is_healthy, "type": "zerolane", "capacity_bytes": hosts}

    def close(self) -> None:
        for tasks in (self._stores, self._lookups, self._loads):
            tasks.close()
        self._cache.close()

    def _bitmap(self, flags: Sequence[bool]) -> Any:
        bitmap = self.make_bitmap(len(flags))
        for index, flag in enumerate(flags):
            if flag:
                bitmap.set(index)
        return bitmap


@functools.cache
def _adapter() -> type:
    """The class for the LMCache that is installed."""
    try:
        from lmcache.lmcache_native import Bitmap
    except ImportError:
        # Before 0.5.
        from lmcache.native_storage_ops import Bitmap
    from lmcache.v1.distributed import internal_api
    from lmcache.v1.distributed.l2_adapters.base import L2AdapterInterface

    class L2Adapter(_Adapter, L2AdapterInterface):  # type: ignore[misc]
        """Keeps objects of LMCache in the memory of other hosts."""

        make_bitmap = staticmethod(Bitmap)
        # Before 0.5 a store's result was whether it succeeded.
        make_result = staticmethod(getattr(internal_api, "L2StoreResult", _succeeded))

    return L2Adapter


def _succeeded(is_successful: bool, _: int) -> bool:
    return is_successful


def __getattr__(name: str) -> Any:
    # LMCache is imported when it asks for the class: without it, the module can still be imported.
    if name == "L2Adapter":
        return _adapter()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
