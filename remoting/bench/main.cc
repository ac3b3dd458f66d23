// headrace-bench LIBCUDA RUNS: measures calls, launches and copies of a libcuda.so.1 next to a raw
// TLS connection, one after the other in every run, and prints one JSON object with every number.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "bench/driver.h"
#include "bench/raw_tls.h"
#include "common/clock.h"

namespace headrace::bench {
namespace {

constexpr int blocks = 60, calls_in_block = 50;
constexpr int launches = 200'000;
constexpr std::size_t copy_bytes = std::size_t{256} << 20;
constexpr std::size_t ping_bytes = 64;

// Values of one quantity, a run each.
using Series = std::map<std::string, std::vector<double>>;

double seconds_of(std::uint64_t since) { return static_cast<double>(monotonic_ns() - since) / 1e9; }

template <typename Body>
double seconds(Body body) {
  const std::uint64_t begin = monotonic_ns();
  body();
  return seconds_of(begin);
}

class Subject {
 public:
  explicit Subject(const char* path) : driver_(path) {
    HEADRACE_BENCH_CALL(driver_, cuInit, 0);
    CUdevice device = 0;
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    HEADRACE_BENCH_CALL(driver_, cuDeviceGet, &device, 0);
    HEADRACE_BENCH_CALL(driver_, cuDevicePrimaryCtxRetain, &context, device);
    HEADRACE_BENCH_CALL(driver_, cuCtxSetCurrent, context);
    HEADRACE_BENCH_CALL(driver_, cuStreamCreate, &stream_, CU_STREAM_NON_BLOCKING);
    HEADRACE_BENCH_CALL(driver_, cuModuleLoadData, &module, ptx);
    HEADRACE_BENCH_CALL(driver_, cuModuleGetFunction, &kernel_, module, "three");
    HEADRACE_BENCH_CALL(driver_, cuMemAlloc_v2, &memory_, copy_bytes);
    launch_ = driver_.find<decltype(::cuLaunchKernel)>("cuLaunchKernel");
    synchronize_ = driver_.find<decltype(::cuStreamSynchronize)>("cuStreamSynchronize");
    query_ = driver_.find<decltype(::cuStreamQuery)>("cuStreamQuery");
    to_device_ = driver_.find<decltype(::cuMemcpyHtoD_v2)>("cuMemcpyHtoD_v2");
    to_host_ = driver_.find<decltype(::cuMemcpyDtoH_v2)>("cuMemcpyDtoH_v2");
  }

  void call() { check(query_(stream_), "cuStreamQuery"); }
  void wait() { check(synchronize_(stream_), "cuStreamSynchronize"); }
  void launch() {
    int a = 1, b = 2;
    CUdeviceptr c = memory_;
    void* parameters[] = {&c, &a, &b};
    check(launch_(kernel_, 1, 1, 1, 32, 1, 1, 0, stream_, parameters, nullptr), "cuLaunchKernel");
  }
  void up(const std::uint8_t* from) {
    check(to_device_(memory_, from, copy_bytes), "cuMemcpyHtoD");
  }
  void down(std::uint8_t* to) { check(to_host_(to, memory_, copy_bytes), "cuMemcpyDtoH"); }

 private:
  static constexpr char ptx[] =
      ".version 7.0\n.target sm_80\n.address_size 64\n"
      ".visible .entry three(.param .u64 a, .param .u32 b, .param .u32 c)\n{\n  ret;\n}\n";

  Driver driver_;
  CUstream stream_ = nullptr;
  CUfunction kernel_ = nullptr;
  CUdeviceptr memory_ = 0;
  decltype(::cuLaunchKernel)* launch_ = nullptr;
  decltype(::cuStreamSynchronize)* synchronize_ = nullptr;
  decltype(::cuStreamQuery)* query_ = nullptr;
  decltype(::cuMemcpyHtoD_v2)* to_device_ = nullptr;
  decltype(::cuMemcpyDtoH_v2)* to_host_ = nullptr;
};

// Adds the time of each of some calls, in microseconds.
template <typename Body>
void time_calls(std::vector<double>& times, Body body) {
  for (int i = 0; i < calls_in_block; ++i) times.push_back(seconds(body) * 1e6);
}

double percentile(std::vector<double>& times, double share) {
  const std::size_t at = static_cast<std::size_t>(share * static_cast<double>(times.size() - 1));
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(at), times.end());
  return times[at];
}

// Raw and ours take turns, so that whatever else the machine does meets both.
void measure_calls(RawTls& raw, Subject& subject, Series& series) {
  std::vector<double> raw_times, times;
  for (int block = 0; block < blocks; ++block) {
    time_calls(raw_times, [&] { raw.ping(ping_bytes); });
    time_calls(times, [&] { subject.call(); });
  }
  series["raw_call_us"].push_back(percentile(raw_times, 0.5));
  series["call_us"].push_back(percentile(times, 0.5));
  series["raw_call_p99_us"].push_back(percentile(raw_times, 0.99));
  series["call_p99_us"].push_back(percentile(times, 0.99));
}

void one_run(RawTls& raw, Subject& subject, std::vector<std::uint8_t>& host, Series& series) {
  measure_calls(raw, subject, series);

  const std::uint64_t begin = monotonic_ns();
  for (int i = 0; i < launches; ++i) subject.launch();
  const double enqueued = seconds_of(begin);
  subject.wait();
  series["launches_enqueued_per_s"].push_back(launches / enqueued);
  series["launches_drained_per_s"].push_back(launches / seconds_of(begin));

  const double mib = static_cast<double>(copy_bytes) / (1 << 20);
  series["raw_up_mib_s"].push_back(mib / seconds([&] { raw.send(host); }));
  series["up_mib_s"].push_back(mib / seconds([&] {
                                 subject.up(host.data());
                                 subject.wait();
                                 subject.call();
                               }));
  series["raw_down_mib_s"].push_back(mib / seconds([&] { raw.receive(host); }));
  series["down_mib_s"].push_back(mib / seconds([&] { subject.down(host.data()); }));
}

void print(const Series& series) {
  std::printf("{");
  const char* between = "";
  for (const auto& [name, values] : series) {
    std::printf("%s\"%s\": [", between, name.c_str());
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::printf("%s%.3f", i == 0 ? "" : ", ", values[i]);
    }
    std::printf("]");
    between = ", ";
  }
  std::printf("}\n");
}

int run(const char* library, int runs) {
  // Before anything of ours has threads: the raw server is forked.
  RawTls raw;
  Subject subject(library);
  std::vector<std::uint8_t> host(copy_bytes);
  for (std::size_t i = 0; i < host.size(); ++i)
    host[i] = static_cast<std::uint8_t>(i * 2654435761u >> 13);
  Series warm_up, series;
  one_run(raw, subject, host, warm_up);
  for (int i = 0; i < runs; ++i) one_run(raw, subject, host, series);
  print(series);
  return 0;
}

}  // namespace
}  // namespace headrace::bench

int main(int argc, char** argv) {
  if (argc != 3 || std::atoi(argv[2]) < 1) {
    std::fprintf(stderr, "usage: headrace-bench LIBCUDA RUNS\n");
    return 2;
  }
  return headrace::bench::run(argv[1], std::atoi(argv[2]));
}
