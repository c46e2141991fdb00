// Own worker threads and the barrier inside a parallel region. Knows no arithmetic.
//
// The caller of `run` is worker 0. Workers spin briefly for the next region, then sleep: an idle pool uses no
// processor time. After a fork the child has no workers, so a region there runs on the caller alone.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace roundhouse {

// Where the workers of one region meet. The last to arrive resets the counters of claimed items.
class alignas(64) MeetingPoint {
 public:
  explicit MeetingPoint(unsigned workers) : shares_(workers), expected_(workers) {}

  void expect(unsigned workers) { expected_ = workers; }
  unsigned expected() const { return expected_; }
  void arrive_and_wait();

  // The next item of a worker's share of `size`; `size` or more when all are taken.
  std::size_t claim(unsigned share, std::size_t size) {
    std::atomic<std::size_t>& next = shares_[share].next;
    const std::size_t seen = next.load(std::memory_order_relaxed);
    return seen >= size ? seen : next.fetch_add(1, std::memory_order_relaxed);
  }

 private:
  struct alignas(64) Share {
    std::atomic<std::size_t> next{0};
  };

  void reset();

  alignas(64) std::atomic<std::uint32_t> arrived_{0};
  alignas(64) std::atomic<std::uint32_t> generation_{0};
  std::vector<Share> shares_;
  unsigned expected_;
};

// One worker's view of a region.
class Team {
 public:
  Team(MeetingPoint& point, unsigned worker, unsigned workers) : point_(point), worker_(worker), workers_(workers) {}

  unsigned worker() const { return worker_; }
  unsigned workers() const { return workers_; }
  void barrier() const { point_.arrive_and_wait(); }

  // Runs body(item) for items 0..count-1, then meets the others. Every worker must call it with the same count.
  // Items must not depend on each other: a worker takes those of its share in order, which memory is read fastest
  // by, and then helps with the shares of the others.
  template <class Body>
  void for_each(std::size_t count, Body&& body) const {
    for (unsigned i = 0; i < workers_; ++i) {
      const unsigned share = (worker_ + i) % workers_;
      const std::size_t begin = count * share / workers_;
      const std::size_t size = count * (share + 1) / workers_ - begin;
      for (std::size_t item = point_.claim(share, size); item < size; item = point_.claim(share, size)) {
        body(begin + item);
      }
    }
    barrier();
  }

 private:
  MeetingPoint& point_;
  unsigned worker_;
  unsigned workers_;
};

class ThreadPool {
 public:
  explicit ThreadPool(unsigned workers);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  unsigned workers() const { return static_cast<unsigned>(threads_.size()) + 1; }

  // Runs body(team) on every worker; returns when all are done. One region at a time: callers queue up.
  template <class Body>
  void run(Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run_erased([](void* context, const Team& team) { (*static_cast<Plain*>(context))(team); },
               const_cast<void*>(static_cast<const void*>(&body)));
  }

  // Stops the workers; later regions run on the caller alone.
  void stop();

 private:
  using Task = void (*)(void* context, const Team& team);

  void run_erased(Task task, void* context);
  void serve(unsigned worker);

  std::mutex one_region_;
  MeetingPoint point_;
  alignas(64) std::atomic<std::uint32_t> epoch_{0};
  std::atomic<bool> stopping_{false};
  Task task_ = nullptr;
  void* context_ = nullptr;
  std::vector<std::thread> threads_;
  long process_ = 0;
};

}  // namespace roundhouse
