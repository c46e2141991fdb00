"""Probing a machine, on trees of files as Linux shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_backend.plan.hardware import HardwareProfile, probe

GIB = 1 << 30
MEMINFO = (
    "MemTotal:       16777216 kB\nMemFree:         1048576 kB\nMemAvailable:    8388608 kB\n"
    "SwapTotal:       2097152 kB\nHugePages_Total:       0\n"
)


def machine(root: Path, files: dict[str, str]) -> HardwareProfile:
    for name, content in ({"proc/meminfo": MEMINFO} | files).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return probe(root)


def test_memory_without_a_limit(tmp_path: Path) -> None:
    profile = machine(tmp_path, {})

    assert profile.total_bytes == 16 * GIB
    assert profile.available_bytes == profile.usable_bytes == 8 * GIB
    assert profile.swap_bytes == 2 * GIB
    assert profile.limit_bytes is None
    assert profile.cores >= 1


V2 = "sys/fs/cgroup/outer/inner/memory."
V1 = "sys/fs/cgroup/memory/box/memory."
LIMITS: dict[str, tuple[dict[str, str], int | None, int]] = {
    "version 2": (
        {"proc/self/cgroup": "0::/outer/inner\n", V2 + "max": f"{4 * GIB}\n", V2 + "current": f"{GIB}\n"},
        4 * GIB,
        3 * GIB,
    ),
    "version 2, pages of files do not count": (
        {
            "proc/self/cgroup": "0::/outer/inner\n",
            V2 + "max": f"{4 * GIB}\n",
            V2 + "current": f"{3 * GIB}\n",
            V2 + "stat": f"anon {GIB}\ninactive_file {GIB}\nactive_file {GIB}\n",
        },
        4 * GIB,
        3 * GIB,
    ),
    "version 2, a tighter limit further up": (
        {
            "proc/self/cgroup": "0::/outer/inner\n",
            V2 + "max": "max\n",
            V2 + "current": f"{GIB}\n",
            "sys/fs/cgroup/outer/memory.max": f"{2 * GIB}\n",
            "sys/fs/cgroup/outer/memory.current": f"{GIB}\n",
        },
        2 * GIB,
        GIB,
    ),
    "version 2, no limit": (
        {"proc/self/cgroup": "0::/outer/inner\n", V2 + "max": "max\n", V2 + "current": "5\n"},
        None,
        8 * GIB,
    ),
    "version 1": (
        {
            "proc/self/cgroup": "5:cpu,cpuacct:/box\n4:memory:/box\n",
            V1 + "limit_in_bytes": f"{6 * GIB}\n",
            V1 + "usage_in_bytes": f"{5 * GIB}\n",
            V1 + "stat": f"total_inactive_file {2 * GIB}\ntotal_active_file {GIB}\n",
        },
        6 * GIB,
        4 * GIB,
    ),
    "version 1, no limit": (
        {
            "proc/self/cgroup": "4:memory:/box\n",
            V1 + "limit_in_bytes": "9223372036854771712\n",
            V1 + "usage_in_bytes": "5\n",
        },
        None,
        8 * GIB,
    ),
    "a limit above what is free": (
        {"proc/self/cgroup": "0::/outer/inner\n", V2 + "max": f"{12 * GIB}\n", V2 + "current": "0\n"},
        12 * GIB,
        8 * GIB,
    ),
}


@pytest.mark.parametrize("case", LIMITS)
def test_limits_of_control_groups_are_obeyed(tmp_path: Path, case: str) -> None:
    files, limit, usable = LIMITS[case]

    profile = machine(tmp_path, files)

    assert profile.limit_bytes == limit
    assert profile.usable_bytes == usable


def test_instruction_sets_are_named_in_a_fixed_order(tmp_path: Path) -> None:
    intel = machine(tmp_path / "a", {"proc/cpuinfo": "processor : 0\nflags\t\t: fpu avx512f fma avx2 sse\n"})
    arm = machine(tmp_path / "b", {"proc/cpuinfo": "Features\t: fp asimd i8mm asimddp\n"})

    assert intel.instruction_sets == ("avx2", "fma", "avx512f")
    assert arm.instruction_sets == ("asimd", "asimddp", "i8mm")


def test_a_machine_without_proc_has_memory_all_the_same(tmp_path: Path) -> None:
    profile = probe(tmp_path)

    assert profile.total_bytes > 0
    assert "unknown" in profile.to_text()


def test_this_machine_is_described() -> None:
    profile = probe()

    assert 0 < profile.usable_bytes <= profile.total_bytes
    assert "memory" in profile.to_text()
