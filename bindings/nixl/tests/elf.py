"""Reads a shared library's symbols, and the functions that a virtual table names."""

import struct
from pathlib import Path

SYMBOL_TABLES = (2, 11)
RELOCATIONS = 4
RELATIVE, ABSOLUTE = 8, 1
POINTER = 8


class Library:
    """Of x86-64, not stripped."""

    def __init__(self, path):
        self.data = Path(path).read_bytes()
        assert self.data[:6] == b"\x7fELF\x02\x01"
        (start,) = struct.unpack_from("<Q", self.data, 0x28)
        size, count = struct.unpack_from("<HH", self.data, 0x3A)
        self.sections = [struct.unpack_from("<IIQQQQIIQQ", self.data, start + size * it) for it in range(count)]
        self.symbols = {}
        self.names_at = {}
        for section in self.sections:
            if section[1] in SYMBOL_TABLES:
                self._read_symbols(section)

    def _strings(self, section):
        return self.sections[section[6]]

    def _name(self, strings, offset):
        start = strings[4] + offset
        return self.data[start : self.data.index(b"\0", start)].decode()

    def _read_symbols(self, section):
        strings = self._strings(section)
        for at in range(section[4], section[4] + section[5], 24):
            name, _, _, index, value, size = struct.unpack_from("<IBBHQQ", self.data, at)
            text = self._name(strings, name)
            if index and text:
                self.symbols[text] = (value, size)
                self.names_at.setdefault(value, set()).add(text)

    def _pointers(self):
        """What the loader puts at each address: names of functions."""
        pointers = {}
        for section in self.sections:
            if section[1] != RELOCATIONS:
                continue
            table = self.sections[section[6]]
            for at in range(section[4], section[4] + section[5], 24):
                offset, info, addend = struct.unpack_from("<QQq", self.data, at)
                kind, symbol = info & 0xFFFFFFFF, info >> 32
                if kind == RELATIVE:
                    pointers[offset] = self.names_at.get(addend, set())
                elif kind == ABSOLUTE:
                    (name,) = struct.unpack_from("<I", self.data, table[4] + 24 * symbol)
                    pointers[offset] = {self._name(self._strings(table), name)}
        return pointers

    def table(self, name):
        """The mangled names of the functions of a virtual table, in order."""
        start, size = self.symbols[name]
        pointers = self._pointers()
        return [pointers.get(at, set()) for at in range(start + 2 * POINTER, start + size, POINTER)]
