"""Compares abi.h with the installed wheel of NIXL, and the ways to install the plug-in."""

import os
import re
import subprocess
import sys
from pathlib import Path

import zerolane_nixl
from elf import Library

# Of NIXL's class, as the guide for back ends lists them; two are the ends of an object.
METHODS = """
    ~ ~ supportsRemote supportsLocal supportsNotif getSupportedMems registerMem deregisterMem connect disconnect
    unloadMD prepXfer postXfer checkXfer releaseReqH prepMemView prepMemView releaseMemView getPublicData getConnInfo
    loadRemoteConnInfo loadRemoteMD loadLocalMD getNotifs genNotif queryMem estimateXferCost
""".split()


def methods(names):
    """The methods among the mangled names of one function: a compiler merges equal ones. ~ is the end of an object."""
    ends = {"~" for it in names if re.search(r"D[012]Ev$", it)}
    return ends | {it for it in METHODS for name in names if f"{len(it)}{it}" in name}


def assert_order(path, table):
    found = [methods(names) for names in Library(path).table(table)]
    assert len(found) == len(METHODS)
    for index, (name, names) in enumerate(zip(METHODS, found, strict=True)):
        assert name in names, f"function {index} of {path} is {names}, not {name}"


def test_abi__has_the_order_of_the_wheels_engines(plugins):
    assert_order(plugins / "libplugin_POSIX.so", "_ZTV15nixlPosixEngine")
    ours = Path(os.environ["ZEROLANE_NIXL_UNSTRIPPED"])
    (table,) = [it for it in Library(ours).symbols if it.startswith("_ZTVN") and it.endswith("8ZerolaneE")]
    assert_order(ours, table)


def test_abi__shows_two_functions_and_no_other_library(plugins):
    said = subprocess.run(
        ["readelf", "--wide", "--dyn-syms", "--dynamic", zerolane_nixl.PLUGIN],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert set(re.findall(r"(?:GLOBAL|WEAK|UNIQUE) +DEFAULT +[0-9]+ (\S+)", said)) == {
        "nixl_plugin_init",
        "nixl_plugin_fini",
    }
    needed = set(re.findall(r"NEEDED.*\[(\S+)\]", said))
    assert not {it for it in needed if "stdc++" in it or "zerolane" in it or "gcc" in it}, needed


def test_module__prints_what_to_export_and_checks_it():
    said = subprocess.run([sys.executable, "-m", "zerolane_nixl"], capture_output=True, text=True, timeout=60)
    assert said.returncode == 0, said.stderr
    name, _, place = said.stdout.strip().partition("=")
    assert name == "export NIXL_PLUGIN_DIR"
    assert "checked" in said.stderr and "\n" not in place
    assert {"libplugin_ZEROLANE.so", "libplugin_UCX.so", "libplugin_POSIX.so"} <= {
        it.name for it in Path(place).iterdir()
    }


def test_directory__hides_none_of_the_wheels_plugins(plugins):
    program = """
import nixl_cu12._api as nixl
agent = nixl.nixl_agent("one", nixl.nixl_agent_config(backends=[]))
assert {"UCX", "POSIX", "ZEROLANE"} <= set(agent.get_plugin_list()), agent.get_plugin_list()
for it in ("POSIX", "UCX", "ZEROLANE"):
    agent.create_backend(it, {})
assert agent.get_plugin_mem_types("ZEROLANE") == ["DRAM_SEG"], agent.get_plugin_mem_types("ZEROLANE")
assert agent.get_plugin_params("ZEROLANE")["security"] == "encrypted"
print("all are there", flush=True)
# At the end of a process UCX crashes on machines without a GPU, whatever else is loaded.
import os
os._exit(0)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert said.returncode == 0 and "all are there" in said.stdout, said.stderr


def test_version__of_another_nixl_is_refused_in_words(tmp_path):
    """Loads the plug-in by a library that says it is NIXL 0.9."""
    source = tmp_path / "caller.c"
    source.write_text(
        'const char version[] = "0.9.0";\n'
        'void *call(void *(*init)(void)) { void *it = init(); __asm__ volatile(""); return version[0] ? it : 0; }\n'
    )
    library = tmp_path / "libnixl.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O0", source, "-o", library], check=True)
    program = f"""
import ctypes
plugin = ctypes.CDLL({str(zerolane_nixl.PLUGIN)!r})
caller = ctypes.CDLL({str(library)!r})
caller.call.restype = ctypes.c_void_p
assert not caller.call(plugin.nixl_plugin_init)
plugin.nixl_plugin_init.restype = ctypes.c_void_p
assert not plugin.nixl_plugin_init()
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert said.returncode == 0, said.stderr
    assert "this plug-in is for NIXL 1.0 to 1.5, and this NIXL is 0.9.0" in said.stderr
    assert "of an unknown version" in said.stderr
