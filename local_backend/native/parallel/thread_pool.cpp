#include "parallel/thread_pool.h"

#if defined(_WIN32)
#include <process.h>
#else
#include <unistd.h>
#endif
#if defined(ROUNDHOUSE_X86)
#include <immintrin.h>
#endif

namespace roundhouse {

namespace {

// Roughly 50 microseconds: longer than the gap between two layers, far shorter than anyone notices.
constexpr int spin_rounds = 2000;

void relax() {
#if defined(ROUNDHOUSE_X86)
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

long current_process() {
#if defined(_WIN32)
  return _getpid();
#else
  return static_cast<long>(getpid());
#endif
}

// Waits until `value` is no longer `old`.
void wait_for_change(std::atomic<std::uint32_t>& value, std::uint32_t old) {
  for (int i = 0; i < spin_rounds; ++i) {
    if (value.load(std::memory_order_acquire) != old) {
      return;
    }
    relax();
  }
  while (value.load(std::memory_order_acquire) == old) {
    value.wait(old, std::memory_order_acquire);
  }
}

}  // namespace

void MeetingPoint::reset() {
  for (Share& share : shares_) {
    share.next.store(0, std::memory_order_relaxed);
  }
}

void MeetingPoint::arrive_and_wait() {
  if (expected_ == 1) {
    reset();
    return;
  }
  const std::uint32_t generation = generation_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == expected_) {
    arrived_.store(0, std::memory_order_relaxed);
    reset();
    generation_.store(generation + 1, std::memory_order_release);
    generation_.notify_all();
    return;
  }
  wait_for_change(generation_, generation);
}

ThreadPool::ThreadPool(unsigned workers) : point_(workers < 1 ? 1 : workers), process_(current_process()) {
  for (unsigned worker = 1; worker < workers; ++worker) {
    threads_.emplace_back([this, worker] { serve(worker); });
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  const std::lock_guard lock(one_region_);
  if (threads_.empty()) {
    return;
  }
  if (process_ != current_process()) {  // the threads stayed in the parent; there is nothing to join here
    for (std::thread& thread : threads_) {
      thread.detach();
    }
    threads_.clear();
    return;
  }
  stopping_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
  threads_.clear();
  point_.expect(1);
}

void ThreadPool::run_erased(Task task, void* context) {
  const std::lock_guard lock(one_region_);
  if (threads_.empty() || process_ != current_process()) {
    MeetingPoint alone(1);
    task(context, Team(alone, 0, 1));
    return;
  }
  task_ = task;
  context_ = context;
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  task(context, Team(point_, 0, workers()));
  point_.arrive_and_wait();
}

void ThreadPool::serve(unsigned worker) {
  const unsigned workers = point_.expected();  // the vector of threads may still be growing
  std::uint32_t seen = 0;
  for (;;) {
    wait_for_change(epoch_, seen);
    seen = epoch_.load(std::memory_order_acquire);
    if (stopping_.load(std::memory_order_relaxed)) {
      return;
    }
    task_(context_, Team(point_, worker, workers));
    point_.arrive_and_wait();
  }
}

}  // namespace roundhouse
