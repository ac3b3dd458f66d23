// What befalls a software device and who keeps it busy, across processes; modelled kernel times.
#include <doctest/doctest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "folder.h"
#include "remoting/softgpu/device/condition.h"
#include "remoting/softgpu/device/kernel_times.h"

namespace softgpu = headrace::softgpu;
using softgpu::Condition;

namespace {

using headrace::tests::Folder;

std::unique_ptr<Condition> open_condition(const std::string& folder) {
  std::string why;
  std::unique_ptr<Condition> out = Condition::open(folder, 0, &why);
  CAPTURE(why);
  REQUIRE(out != nullptr);
  return out;
}

void pass_milliseconds(long count) {
  timespec time{count / 1000, count % 1000 * 1'000'000};
  nanosleep(&time, nullptr);
}

// A process that is busy on the device until it is killed. Returns when it is.
class Busy {
 public:
  explicit Busy(const std::string& folder) {
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    pid_ = fork();
    if (pid_ == 0) {
      std::string why;
      std::unique_ptr<Condition> condition = Condition::open(folder, 0, &why);
      condition->add_context(1);
      condition->begin_kernel();
      char byte = 0;
      if (write(ready[1], &byte, 1) != 1) _exit(1);
      for (;;) pause();
    }
    char byte = 0;
    REQUIRE(read(ready[0], &byte, 1) == 1);
    close(ready[0]);
    close(ready[1]);
  }
  ~Busy() { end(); }
  void end() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

// Device time that a kernel of ours gets while `milliseconds` pass.
double share_of(Condition& condition, long milliseconds) {
  timespec begin{}, end{};
  clock_gettime(CLOCK_MONOTONIC, &begin);
  const std::uint64_t before = condition.progress_ns();
  pass_milliseconds(milliseconds);
  const std::uint64_t after = condition.progress_ns();
  clock_gettime(CLOCK_MONOTONIC, &end);
  const double wall = static_cast<double>(end.tv_sec - begin.tv_sec) * 1e9 +
                      static_cast<double>(end.tv_nsec - begin.tv_nsec);
  return static_cast<double>(after - before) / wall;
}

}  // namespace

TEST_CASE("busy processes share a device, and the dead leave it") {
  Folder folder;
  std::unique_ptr<Condition> ours = open_condition(folder.path);
  ours->add_context(1);
  ours->begin_kernel();
  CHECK(share_of(*ours, 30) == doctest::Approx(1).epsilon(0.1));
  {
    Busy other(folder.path);
    CHECK(ours->usage().size() == 2);
    CHECK(share_of(*ours, 40) == doctest::Approx(0.5).epsilon(0.15));
    CHECK(ours->parts() == 2);
    Busy third(folder.path);
    CHECK(share_of(*ours, 60) == doctest::Approx(1.0 / 3).epsilon(0.2));
    ours->begin_kernel();  // two of ours share our part
    CHECK(share_of(*ours, 60) == doctest::Approx(1.0 / 6).epsilon(0.25));
    ours->end_kernel();
    CHECK(ours->busy_percent() > 90);
  }
  // Killed with kernels running: it is noticed at the next look.
  CHECK(ours->usage().size() == 1);
  CHECK(share_of(*ours, 30) == doctest::Approx(1).epsilon(0.1));
  ours->end_kernel();
  CHECK(share_of(*ours, 20) == 0);
  pass_milliseconds(110);
  ours->busy_percent();  // the sample in which it was busy ends
  pass_milliseconds(110);
  CHECK(ours->busy_percent() == 0);
}

TEST_CASE("a condition without a directory is this process's own") {
  std::unique_ptr<Condition> one = open_condition(""), other = open_condition("");
  CHECK_FALSE(one->shared());
  one->add_context(1);
  CHECK(one->usage().size() == 1);
  CHECK(other->usage().empty());
  CHECK(one->failures() == 0);
  CHECK_FALSE(one->refuses_allocation());
  CHECK_FALSE(one->hangs_launch());
  CHECK_FALSE(one->lost());
}

TEST_CASE("kernel times are read from one line") {
  std::string bad;
  const std::vector<softgpu::KernelTime> times =
      softgpu::parse_kernel_times(" *gemm* = 2ms+3us/block , warm=0,*=1.5us", &bad);
  CHECK(bad.empty());
  REQUIRE(times.size() == 3);
  CHECK(times[0].pattern == "*gemm*");
  CHECK(times[0].nanoseconds == 2e6);
  CHECK(times[0].nanoseconds_per_block == 3e3);
  CHECK(times[1].nanoseconds == 0);
  CHECK(times[2].nanoseconds == 1500);
  for (const char* text : {"x", "=1ms", "x=", "x=1", "x=1h", "x=-1ms", "x=1ms+", "x=1ms/thread",
                           "x=nanms", "x=1e30s"}) {
    CAPTURE(std::string(text));
    bad.clear();
    CHECK(softgpu::parse_kernel_times(text, &bad).empty());
    CHECK(bad == text);
  }
}
