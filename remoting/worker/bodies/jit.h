// Options of loads and links (CUjit_option): which may be passed on, and where logs go.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gen/calls.h"
#include "gen/driver_table.h"

namespace headrace::worker::bodies {

// Owns what the driver is given pointers to, so it lives until the driver has written its logs.
class JitOptions {
 public:
  // False: an option that cannot be carried (a pointer of the client's, or unknown).
  bool read(const std::vector<calls::JitOption>& options);

  unsigned count() const { return static_cast<unsigned>(options_.size()); }
  CUjit_option* options() { return options_.data(); }
  void** values() { return values_.data(); }

  // What the driver wrote, for a reply with the fields of a load. Without an error log `reason`
  // takes its place: the client has a log file, if not a buffer.
  template <typename Reply>
  void tell(CUresult result, const std::vector<std::uint8_t>& reason, Reply& reply) const {
    reply.load_result = result;
    reply.info_log = written(info_, info_size_at_);
    reply.error_log = error_size_at_ == absent ? reason : written(error_, error_size_at_);
    if (wall_time_at_ != absent) reply.wall_time = float_at(wall_time_at_);
  }

 private:
  static constexpr std::size_t absent = SIZE_MAX;
  static constexpr std::uint64_t max_log = 256 << 10;

  void add(CUjit_option option, void* value);
  void add_log(CUjit_option buffer, CUjit_option size, std::uint64_t bytes,
               std::vector<std::uint8_t>& log, std::size_t& size_at);
  std::vector<std::uint8_t> written(const std::vector<std::uint8_t>& log, std::size_t at) const;
  float float_at(std::size_t at) const;

  std::vector<CUjit_option> options_;
  std::vector<void*> values_;
  std::vector<std::uint8_t> info_, error_;
  std::size_t info_size_at_ = absent, error_size_at_ = absent, wall_time_at_ = absent;
};

// In words, why this thread's last load, link or look-up failed; empty where the driver does not
// say.
std::vector<std::uint8_t> last_refusal(const DriverTable& driver);

}  // namespace headrace::worker::bodies
