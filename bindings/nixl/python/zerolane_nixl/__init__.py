"""NIXL's back end ZEROLANE: finds NIXL's own plug-ins and puts this one beside them.

``python -m zerolane_nixl`` prints what to export, and checks it by a transfer.
"""

import hashlib
import os
import stat
import tempfile
from importlib import metadata
from pathlib import Path

__all__ = ["PLUGIN", "Missing", "activate", "plugin_directory"]

PLUGIN = Path(__file__).parent / "libplugin_ZEROLANE.so"

# The wheels of NIXL that have the library, and the packages in them.
_WHEELS = {"nixl-cu12": "nixl_cu12", "nixl-cu13": "nixl_cu13"}


class Missing(Exception):
    """NIXL is not installed, or not as a wheel."""


def _nixl() -> tuple[str, Path, str]:
    """The package of NIXL, where it is installed, and its version."""
    for wheel, package in _WHEELS.items():
        try:
            distribution = metadata.distribution(wheel)
        except metadata.PackageNotFoundError:
            continue
        site = Path(str(distribution.locate_file("")))
        if (site / f".{package}.mesonpy.libs" / "plugins").is_dir():
            return package, site, distribution.version
    raise Missing(
        "no wheel of NIXL is installed: pip install nixl-cu12. For a NIXL of your own, copy "
        f"{PLUGIN} to its directory of plug-ins"
    )


def _link_all(source: Path, target: Path, without: str = "") -> None:
    target.mkdir()
    for entry in source.iterdir():
        if entry.name != without:
            (target / entry.name).symlink_to(entry)


def _cache() -> Path:
    """A directory for links that only this user may change."""
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        cache = (Path(base) if base else Path.home() / ".cache") / "zerolane-nixl"
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    except (OSError, RuntimeError):
        cache = Path(tempfile.gettempdir()) / f"zerolane-nixl-{os.getuid()}"
        cache.mkdir(exist_ok=True, mode=0o700)
    status = cache.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise Missing(f"{cache} is no directory that this user alone may write to: remove it")
    return cache


def plugin_directory() -> Path:
    """A directory with NIXL's own plug-ins and this one, for ``NIXL_PLUGIN_DIR``.

    NIXL looks into one directory. This one has links, laid out as in the wheel, because the plug-ins look for their
    libraries relative to where they are.
    """
    package, site, version = _nixl()
    libraries = f".{package}.mesonpy.libs"
    names = "\n".join([str(site), version, str(PLUGIN), str(PLUGIN.stat().st_mtime_ns)])
    cache = _cache()
    place = cache / hashlib.sha256(names.encode()).hexdigest()[:16]
    if not place.is_dir():
        with tempfile.TemporaryDirectory(dir=cache) as made:
            tree = Path(made) / "tree"
            tree.mkdir()
            _link_all(site / libraries, tree / libraries, without="plugins")
            _link_all(site / libraries / "plugins", tree / libraries / "plugins")
            (tree / libraries / "plugins" / PLUGIN.name).symlink_to(PLUGIN)
            (tree / f"{package}.libs").symlink_to(site / f"{package}.libs")
            try:
                tree.rename(place)
            except OSError:
                # Another process was faster.
                if not place.is_dir():
                    raise
    return place / libraries / "plugins"


def activate() -> Path:
    """Sets ``NIXL_PLUGIN_DIR`` of this process and its children: before the first agent. Returns the directory."""
    place = plugin_directory()
    os.environ["NIXL_PLUGIN_DIR"] = str(place)
    return place
