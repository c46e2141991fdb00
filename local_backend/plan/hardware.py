"""What the machine offers this process: memory with its limits, processors, instruction sets.

The only place of this package that reads anything. Knows the system; not models.

Source: proc(5), the kernel's control group documentation (v1 and v2).
"""

from __future__ import annotations

import json
import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from local_backend.config import default_threads
from local_backend.model.quantities import bytes_text, table_text

__all__ = ["HardwareProfile", "probe"]

_KIB = 1024
_NO_LIMIT = 1 << 60  # version 1 writes a number near the largest for "no limit"
# Names as Linux spells them; everything the kernels may want to know.
_INSTRUCTION_SETS = (
    "avx2",
    "fma",
    "f16c",
    "avx_vnni",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "avx512_vnni",
    "avx512_bf16",
    "amx_int8",
    "amx_bf16",
    "asimd",
    "asimddp",
    "i8mm",
    "sve",
    "bf16",
)


@dataclass(frozen=True, slots=True)
class HardwareProfile:
    """Bytes, processors and instruction sets. ``limit_bytes`` is a control group's, ``None`` without one.

    ``available_bytes`` can be taken without swapping; ``limit_left_bytes`` is what the limit leaves.
    """

    total_bytes: int
    available_bytes: int
    limit_bytes: int | None
    limit_left_bytes: int | None
    swap_bytes: int
    cores: int
    machine: str
    instruction_sets: tuple[str, ...]
    memory_source: str

    @property
    def usable_bytes(self) -> int:
        """What this process may take: the smaller of free memory and what the limit leaves."""
        if self.limit_left_bytes is None:
            return self.available_bytes
        return min(self.available_bytes, self.limit_left_bytes)

    def to_text(self) -> str:
        """Return a table for people."""
        limit = "none"
        if self.limit_bytes is not None and self.limit_left_bytes is not None:
            limit = f"{bytes_text(self.limit_bytes)}, of which {bytes_text(self.limit_left_bytes)} are left"
        rows = [
            ("memory", f"{bytes_text(self.total_bytes)} ({self.memory_source})"),
            ("available", bytes_text(self.available_bytes)),
            ("limit", limit),
            ("processors", f"{self.cores}, {self.machine} ({', '.join(self.instruction_sets) or 'unknown'})"),
        ]
        return table_text(rows)

    @classmethod
    def from_json(cls, text: str) -> HardwareProfile:
        """Read the fields of a JSON object. Raises ``ValueError`` or ``KeyError`` otherwise."""
        raw = json.loads(text)
        return cls(**{**raw, "instruction_sets": tuple(raw["instruction_sets"])})


def probe(root: Path = Path("/")) -> HardwareProfile:
    """Look at the machine. ``root`` is where ``proc`` and ``sys`` are found; tests put others there."""
    memory = _linux_memory(root) or _other_memory()
    limits = _unified_limit(root) or _controller_limit(root)
    return HardwareProfile(
        total_bytes=memory.total,
        available_bytes=memory.available,
        limit_bytes=None if limits is None else limits.limit,
        limit_left_bytes=None if limits is None else limits.left,
        swap_bytes=memory.swap,
        cores=default_threads(),
        machine=platform.machine().lower(),
        instruction_sets=_instruction_sets(root),
        memory_source=memory.source,
    )


@dataclass(frozen=True, slots=True)
class _Memory:
    total: int
    available: int
    swap: int
    source: str


@dataclass(frozen=True, slots=True)
class _Limit:
    limit: int
    left: int


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _numbers(text: str | None, pattern: str) -> dict[str, int]:
    """Collect ``name number`` lines."""
    return {name: int(value) for name, value in re.findall(pattern, text or "", re.MULTILINE)}


def _linux_memory(root: Path) -> _Memory | None:
    fields = _numbers(_read(root / "proc/meminfo"), r"^(\w+):\s+(\d+) kB$")
    total = fields.get("MemTotal")
    if total is None:
        return None
    available = fields.get("MemAvailable", fields.get("MemFree", 0))
    return _Memory(total * _KIB, available * _KIB, fields.get("SwapTotal", 0) * _KIB, "/proc/meminfo")


def _other_memory() -> _Memory:
    """Total memory where there is no ``/proc``; how much is free is not asked, so all of it is assumed."""
    windows = _windows_memory()
    if windows is not None:
        return windows
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        total = 0
    return _Memory(total, total, 0, "sysconf; free memory unknown")


def _windows_memory() -> _Memory | None:
    if platform.system() != "Windows":
        return None
    import ctypes

    class Status(ctypes.Structure):
        """``MEMORYSTATUSEX`` of the Windows API."""

        _fields_ = (
            ("length", ctypes.c_ulong),
            ("load", ctypes.c_ulong),
            *((name, ctypes.c_ulonglong) for name in ("total", "available", "page_total", "page_available")),
            *((name, ctypes.c_ulonglong) for name in ("virtual_total", "virtual_available", "extended")),
        )

    status = Status()
    status.length = ctypes.sizeof(Status)
    library = getattr(ctypes, "windll").kernel32  # noqa: B009 - exists on Windows only
    if not library.GlobalMemoryStatusEx(ctypes.byref(status)):
        return None
    swap = max(0, status.page_total - status.total)
    return _Memory(status.total, status.available, swap, "GlobalMemoryStatusEx")


def _unified_limit(root: Path) -> _Limit | None:
    """Find the tightest limit of the unified hierarchy (version 2), from our own group up to the root."""
    found = re.search(r"^0::(/.*)$", _read(root / "proc/self/cgroup") or "", re.MULTILINE)
    if found is None:
        return None
    mount = root / "sys/fs/cgroup"
    group = mount / found[1].lstrip("/")
    limits: list[_Limit] = []
    while group == mount or mount in group.parents:
        limit = _read(group / "memory.max")
        used = _read(group / "memory.current")
        if limit is not None and limit.strip().isdigit() and used is not None:
            stat = _numbers(_read(group / "memory.stat"), r"^(\w+) (\d+)$")
            # Pages of files are given back when they are needed, so they do not count as used.
            kept = int(used) - stat.get("inactive_file", 0) - stat.get("active_file", 0)
            limits.append(_Limit(int(limit), max(0, int(limit) - max(0, kept))))
        group = group.parent
    return min(limits, key=lambda limit: limit.left, default=None)


def _controller_limit(root: Path) -> _Limit | None:
    """Find the limit of the memory controller (version 1), of our own group or of all."""
    groups = _read(root / "proc/self/cgroup") or ""
    found = re.search(r"^\d+:(?:[\w,]*,)?memory(?:,[\w,]*)?:(/.*)$", groups, re.MULTILINE)
    if found is None:
        return None
    mount = root / "sys/fs/cgroup/memory"
    for group in (mount / found[1].lstrip("/"), mount):
        limit = _read(group / "memory.limit_in_bytes")
        used = _read(group / "memory.usage_in_bytes")
        if limit is None or used is None:
            continue
        if int(limit) >= _NO_LIMIT:
            return None
        stat = _numbers(_read(group / "memory.stat"), r"^(\w+) (\d+)$")
        kept = int(used) - stat.get("total_inactive_file", 0) - stat.get("total_active_file", 0)
        return _Limit(int(limit), max(0, int(limit) - max(0, kept)))
    return None


def _instruction_sets(root: Path) -> tuple[str, ...]:
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", _read(root / "proc/cpuinfo") or "", re.MULTILINE)
    flags = set() if found is None else set(found[1].split())
    return tuple(name for name in _INSTRUCTION_SETS if name in flags)
