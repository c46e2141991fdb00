// Scratch memory: 64-byte aligned, grown outside the kernels, never shrunk. Contents are not kept on growth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <utility>

namespace roundhouse {

template <class T>
class Buffer {
 public:
  Buffer() = default;
  ~Buffer() { release(); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  void reserve(std::size_t count) {
    if (count <= size_) {
      return;
    }
    release();
    data_ = static_cast<T*>(::operator new(count * sizeof(T), alignment));
    size_ = count;
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::span<T> span() { return {data_, size_}; }

 private:
  static constexpr std::align_val_t alignment{64};

  void release() {
    if (data_ != nullptr) {
      ::operator delete(data_, alignment);
    }
    data_ = nullptr;
    size_ = 0;
  }

  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace roundhouse
