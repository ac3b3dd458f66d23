// The yardstick: plain OpenSSL, TLS 1.3 over loopback TCP, blocking, one record at a time, as a
// program would do it that wants nothing but to move bytes.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

typedef struct ssl_st SSL;

namespace headrace::bench {

class RawTls {
 public:
  // Starts the other end as a process of its own, as a worker is one.
  RawTls();
  ~RawTls();
  RawTls(const RawTls&) = delete;
  RawTls& operator=(const RawTls&) = delete;

  void ping(std::size_t bytes);                    // there and back
  void send(std::span<const std::uint8_t> bytes);  // until the other end has read all of it
  void receive(std::span<std::uint8_t> bytes);

 private:
  void command(std::uint8_t what, std::uint64_t size);

  pid_t server_ = -1;
  SSL* ssl_ = nullptr;
};

}  // namespace headrace::bench
