// How many processors this process may really use.
#pragma once

namespace roundhouse {

struct Topology {
  unsigned usable_threads = 1;  // hardware threads this process may run on
  unsigned usable_cores = 1;    // distinct physical cores among them
  unsigned quota = 0;           // whole processors' worth of time a control group allows; 0: no limit known
};

Topology detect_topology();

// Workers that make sense: one per physical core, not more than the quota.
unsigned default_workers(const Topology& topology);

}  // namespace roundhouse
