// The attached phase (PROTOCOL.md §7): one network thread carries out the client's frames in order
// and sends what is ready, until somebody ends it.
#pragma once

#include "worker/broker_client.h"
#include "worker/connection.h"
#include "worker/ending.h"
#include "worker/session.h"
#include "worker/stuck_guard.h"
#include "worker/waiter_pool.h"

namespace headrace::worker {

constexpr std::uint32_t max_outstanding = 4096;
constexpr std::uint32_t max_handles = 1'048'576;

class AttachedLoop {
 public:
  AttachedLoop(Connection& connection, BrokerClient& broker, WaiterPool& pool, Session& session);

  Ending run();

 private:
  void read_some();
  // Carries out what is there. True: the turn is over, and there may be more.
  bool carry_out_frames();
  void carry_out(const Frame& frame);
  void carry_out_call(const Frame& frame);
  void set_context(const Frame& frame);
  void begin_blob(const Frame& frame);
  void add_to_blob(const Frame& frame);
  void change_host_memory(const Frame& frame);
  void finish_callback(const Frame& frame);
  void write_some();
  // Looks what has come; sleeps until something has, if it may.
  void wait(bool may_sleep);
  void end(Ending ending);
  bool may_take_frames() const;

  Connection& connection_;
  BrokerClient& broker_;
  WaiterPool& pool_;
  Session& session_;
  const std::uint64_t stall_seconds_;
  StuckGuard guard_;
  Writer fields_;  // out fields of the call at hand
  bool ended_ = false;
  Ending ending_;
  bool readable_ = true;  // the socket may have something
  bool reads_want_write_ = false;
  bool hung_up_ = false;                // nothing more will come than what is buffered
  bool stalled_ = false;                // the last write left some of the output
  std::uint64_t last_progress_ns_ = 0;  // of output
};

}  // namespace headrace::worker
