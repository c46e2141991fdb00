#include "cpu/topology.h"

#include <algorithm>
#include <thread>

#if defined(__linux__)
#include <sched.h>

#include <fstream>
#include <set>
#include <string>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace roundhouse {

#if defined(__linux__)
namespace {

// Threads of one core name the same siblings; where nothing can be read every thread counts as a core.
unsigned count_cores(const cpu_set_t& allowed) {
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) {
      continue;
    }
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
    std::string siblings;
    if (!std::getline(file, siblings)) {
      siblings = "cpu" + std::to_string(cpu);
    }
    cores.insert(siblings);
  }
  return static_cast<unsigned>(cores.size());
}

// Control groups version 2: "quota period" in microseconds, or "max period".
unsigned read_quota() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) {
    return 0;
  }
  try {
    return static_cast<unsigned>(std::max(1.0, std::stod(quota) / period));
  } catch (const std::exception&) {
    return 0;
  }
}

}  // namespace
#endif

Topology detect_topology() {
  Topology topology;
  topology.usable_threads = std::max(1u, std::thread::hardware_concurrency());
  topology.usable_cores = topology.usable_threads;
#if defined(__linux__)
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
    topology.usable_threads = static_cast<unsigned>(std::max(1, CPU_COUNT(&allowed)));
    topology.usable_cores = std::max(1u, count_cores(allowed));
  }
  topology.quota = read_quota();
#elif defined(__APPLE__)
  int cores = 0;
  std::size_t size = sizeof(cores);
  if (sysctlbyname("hw.physicalcpu", &cores, &size, nullptr, 0) == 0 && cores > 0) {
    topology.usable_cores = static_cast<unsigned>(cores);
  }
#endif
  return topology;
}

unsigned default_workers(const Topology& topology) {
  return topology.quota == 0 ? topology.usable_cores : std::min(topology.usable_cores, topology.quota);
}

}  // namespace roundhouse
