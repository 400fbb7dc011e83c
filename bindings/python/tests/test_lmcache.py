"""Tests LMCache's adapter in a model of its interface, and the interface in LMCache's wheel."""

import ast
import os
import select
import subprocess
import sys
import types
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import zerolane.lmcache
from conftest import address_of, lending, pattern
from zerolane.cache import CacheServer

MIB = 1 << 20
WHEEL = "lmcache==0.5.6"


class Bitmap:
    """LMCache's, as far as an adapter uses it."""

    def __init__(self, size: int) -> None:
        self.bits = [False] * size

    def set(self, index: int) -> None:
        self.bits[index] = True


class StoreResult(NamedTuple):
    is_successful: bool
    bytes: int


class ObjectKey(NamedTuple):
    chunk_hash: bytes
    model_name: str = "model"
    kv_rank: int = 0
    object_group_id: int = 0
    cache_salt: str = ""


class MemoryObj:
    """Memory for an object."""

    def __init__(self, content: Any) -> None:
        self.byte_array = memoryview(content)


class Interface:
    """The base of LMCache's adapters."""

    def __init__(self, max_capacity_bytes: int = 0) -> None:
        self.max_capacity_bytes = max_capacity_bytes


@pytest.fixture
def lmcache(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stands for LMCache, whose wheel needs torch."""
    made: dict[str, dict[str, Any]] = {
        "lmcache": {},
        "lmcache.lmcache_native": {"Bitmap": Bitmap},
        "lmcache.v1": {},
        "lmcache.v1.distributed": {},
        "lmcache.v1.distributed.internal_api": {"L2StoreResult": StoreResult},
        "lmcache.v1.distributed.l2_adapters": {},
        "lmcache.v1.distributed.l2_adapters.base": {"L2AdapterInterface": Interface},
    }
    for name, content in made.items():
        module = types.ModuleType(name)
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, module)
    internal = sys.modules["lmcache.v1.distributed.internal_api"]
    monkeypatch.setattr(
        sys.modules["lmcache.v1.distributed"], "internal_api", internal, raising=False
    )
    zerolane.lmcache._adapter.cache_clear()
    yield
    zerolane.lmcache._adapter.cache_clear()


@pytest.fixture
def lent() -> Iterator[CacheServer]:
    with lending(16 * MIB) as server:
        yield server


def ended(descriptor: int, query: Callable[[], Any]) -> Any:
    """The result of a task, when its descriptor tells of it."""
    assert select.select([descriptor], [], [], 60)[0]
    os.eventfd_read(descriptor)
    return query()


def test_adapter__stores_finds_loads_and_deletes(lmcache: None, lent: CacheServer) -> None:
    adapter_class = zerolane.lmcache.L2Adapter
    assert issubclass(adapter_class, Interface)
    hosts = {"hosts": [address_of(lent)], "timeout": 10.0, "lane": "best"}
    adapter = adapter_class(hosts, l1_memory_desc=None)
    stores = adapter.get_store_event_fd()
    lookups, loads = adapter.get_lookup_and_lock_event_fd(), adapter.get_load_event_fd()
    assert len({stores, lookups, loads}) == 3
    assert adapter.report_status()["is_healthy"]
    keys = [
        ObjectKey(b"\0\1"),
        ObjectKey(b"\0\1", cache_salt="other"),
        ObjectKey(b"\0\1", kv_rank=1),
        ObjectKey(b"\0\1", object_group_id=1),
    ]
    contents = [pattern(MIB + it) for it in range(4)]
    task = adapter.submit_store_task(keys[:3], [MemoryObj(it) for it in contents[:3]])
    stored = ended(stores, adapter.pop_completed_store_tasks)
    assert stored == {task: (True, 3 * MIB + 3)}
    assert adapter.pop_completed_store_tasks() == {}
    task = adapter.submit_lookup_and_lock_task(keys, {0: None})
    found = ended(lookups, lambda: adapter.query_lookup_and_lock_result(task))
    assert found.bits == [True, True, True, False]
    assert adapter.query_lookup_and_lock_result(task) is None
    places = [np.zeros_like(it) for it in contents]
    task = adapter.submit_load_task(keys, [MemoryObj(it) for it in places])
    loaded = ended(loads, lambda: adapter.query_load_result(task))
    assert loaded.bits == found.bits
    assert all((places[it] == contents[it]).all() for it in range(3))
    adapter.submit_unlock(keys)
    adapter.delete(keys[:1])
    task = adapter.submit_lookup_and_lock_task(keys)
    found = ended(lookups, lambda: adapter.query_lookup_and_lock_result(task))
    assert found.bits == [False, True, True, False]
    adapter.submit_unlock(keys)
    adapter.close()


def test_adapter__of_a_host_that_is_gone(lmcache: None) -> None:
    with lending(MIB) as server:
        adapter = zerolane.lmcache.L2Adapter(
            {"hosts": [address_of(server)], "timeout": 1.0, "plain": False}
        )
    keys = [ObjectKey(b"1")]
    adapter.submit_store_task(keys, [MemoryObj(bytes(10))])
    stored = ended(adapter.get_store_event_fd(), adapter.pop_completed_store_tasks)
    assert list(stored.values()) == [(False, 0)]
    task = adapter.submit_lookup_and_lock_task(keys)
    descriptor = adapter.get_lookup_and_lock_event_fd()
    found = ended(descriptor, lambda: adapter.query_lookup_and_lock_result(task))
    assert found.bits == [False]
    task = adapter.submit_load_task(keys, [MemoryObj(bytearray(10))])
    loaded = ended(adapter.get_load_event_fd(), lambda: adapter.query_load_result(task))
    assert loaded.bits == [False]
    assert not adapter.report_status()["is_healthy"]
    adapter.close()


def test_module__without_lmcache_says_so() -> None:
    zerolane.lmcache._adapter.cache_clear()
    with pytest.raises(ImportError, match="lmcache"):
        _ = zerolane.lmcache.L2Adapter
    assert not hasattr(zerolane.lmcache, "L2AdapterConfig")


def arguments(function: ast.FunctionDef) -> list[str]:
    return [it.arg for it in [*function.args.posonlyargs, *function.args.args]]


def test_adapter__has_the_calls_of_the_wheel(tmp_path: Path) -> None:
    download = [sys.executable, "-m", "pip", "--no-cache-dir", "download", "--no-deps", "--dest"]
    got = subprocess.run(
        [*download, str(tmp_path), "--only-binary=:all:", WHEEL], capture_output=True, text=True
    )
    if got.returncode:
        pytest.skip(f"no wheel of LMCache: {got.stderr}")
    (wheel,) = tmp_path.glob("*.whl")
    adapters = "lmcache/v1/distributed/l2_adapters"
    with zipfile.ZipFile(wheel) as archive:
        tree = ast.parse(archive.read(f"{adapters}/base.py"))
        filed = archive.read(f"{adapters}/fs_l2_adapter.py").decode()
        names = archive.namelist()
    classes = {it.name: it for it in tree.body if isinstance(it, ast.ClassDef)}
    required = {
        it.name: arguments(it)
        for it in classes["L2AdapterInterface"].body
        if isinstance(it, ast.FunctionDef)
        and any(ast.unparse(by) == "abstractmethod" for by in it.decorator_list)
    }
    assert len(required) >= 11
    for name, wanted in required.items():
        code = getattr(zerolane.lmcache._Adapter, name).__code__
        ours = list(code.co_varnames[: code.co_argcount])
        # 4: takes more by position.
        assert ours == wanted[: len(ours)] and (ours == wanted or code.co_flags & 4), name
    assert f"{adapters}/plugin_l2_adapter.py" in names
    # What one of LMCache's own adapters imports, and how it uses it.
    assert "from lmcache.lmcache_native import Bitmap" in filed
    assert "from lmcache.v1.distributed.internal_api import L2StoreResult" in filed
    assert "L2StoreResult(success, bytes_written)" in filed and "obj.byte_array" in filed
