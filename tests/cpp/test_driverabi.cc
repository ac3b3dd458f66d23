// Export tables, the runtime's integrity check and context storage of remoting/driverabi.
#include <doctest/doctest.h>
#include <pthread.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "driverabi/context_storage.h"
#include "driverabi/export_tables.h"
#include "driverabi/md2.h"

namespace {

using headrace::driverabi::Bytes;
using headrace::driverabi::DeviceIdentity;
using headrace::driverabi::DriverHooks;
using headrace::driverabi::Md2Digest;

Bytes bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

std::string hex(const Md2Digest& digest) {
  std::string text;
  char pair[3];
  for (const std::uint8_t byte : digest) {
    std::snprintf(pair, sizeof pair, "%02x", byte);
    text += pair;
  }
  return text;
}

int g_context;
int g_destroyed;
bool g_usable = true;
std::string g_last_line;

const DriverHooks kHooks = {
    .usable = [] { return g_usable; },
    .driver_version = [] { return 13000; },
    .device_count = [] { return 2; },
    .device_identity =
        [](int device, DeviceIdentity* out) {
          out->uuid.fill(static_cast<std::uint8_t>(device + 1));
          out->pci_bus = device;
          return true;
        },
    .primary_context =
        [](void** context, int) {
          *context = &g_context;
          return 0;
        },
    .current_context = []() -> void* { return &g_context; },
    .load_module = [](void**, const void*) { return 0; },
    .log = [](const char* line) { g_last_line = line; },
};

void** table(std::initializer_list<int> start, std::initializer_list<int> rest) {
  std::uint8_t uuid[16];
  int at = 0;
  for (const int byte : start) uuid[at++] = static_cast<std::uint8_t>(byte);
  for (const int byte : rest) uuid[at++] = static_cast<std::uint8_t>(byte);
  const void* found = nullptr;
  headrace::driverabi::set_driver_hooks(&kHooks);
  REQUIRE(headrace::driverabi::get_export_table(&found, uuid) == 0);
  return static_cast<void**>(const_cast<void*>(found));
}

void** storage_table() {
  return table({0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11},
               {0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95, 0x93});
}

void** runtime_table() {
  return table({0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a},
               {0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9});
}

void** check_table() {
  return table({0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b},
               {0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1, 0xf2});
}

}  // namespace

TEST_CASE("MD2 and HMAC agree with the test strings of RFC 1319") {
  CHECK(hex(headrace::driverabi::md2(bytes_of(""))) == "8350e5a3e24c153df2275c9f80692773");
  CHECK(hex(headrace::driverabi::md2(bytes_of("abc"))) == "da853b0d3f88d99b30283a69e6ded6bb");
  CHECK(hex(headrace::driverabi::md2(bytes_of("abcdefghijklmnopqrstuvwxyz"))) ==
        "4e8ddff3650292ab5a4108c3aa47940b");
  CHECK(hex(headrace::driverabi::hmac_md2(bytes_of("key"), bytes_of("message"))) !=
        hex(headrace::driverabi::hmac_md2(bytes_of("kez"), bytes_of("message"))));
}

TEST_CASE("sized tables state their size, and known slots answer") {
  void** const runtime = runtime_table();
  CHECK(reinterpret_cast<std::uintptr_t>(runtime[0]) == 13 * 8);
  void* context = nullptr;
  CHECK(reinterpret_cast<int (*)(void**, int)>(runtime[2])(&context, 0) == 0);
  CHECK(context == &g_context);
  CHECK(reinterpret_cast<int (*)()>(runtime[12])() == 0);
}

TEST_CASE("an unknown slot answers 0 and is named in the log") {
  g_last_line.clear();
  CHECK(reinterpret_cast<int (*)()>(runtime_table()[5])() == 0);
  CHECK(g_last_line.find("unknown slot 5") != std::string::npos);
}

TEST_CASE("an unknown table is refused and named in the log") {
  const std::uint8_t uuid[16] = {0xf8, 0xcf};
  const void* found = &g_context;
  headrace::driverabi::set_driver_hooks(&kHooks);
  CHECK(headrace::driverabi::get_export_table(&found, uuid) == 1);
  CHECK(found == nullptr);
  CHECK(g_last_line.find("f8cf") != std::string::npos);
}

TEST_CASE("context storage: a miss is an error, destructors run once at destruction") {
  using Destructor = void (*)(void*, void*, void*);
  void** const storage = storage_table();
  const auto put = reinterpret_cast<int (*)(void*, void*, void*, Destructor)>(storage[0]);
  const auto erase = reinterpret_cast<int (*)(void*, void*)>(storage[1]);
  const auto get = reinterpret_cast<int (*)(void**, void*, void*)>(storage[2]);
  int key = 0;
  int value = 0;
  void* found = nullptr;
  CHECK(get(&found, nullptr, &key) != 0);
  CHECK(put(nullptr, &key, &value, [](void*, void*, void*) { ++g_destroyed; }) == 0);
  CHECK(get(&found, &g_context, &key) == 0);
  CHECK(found == &value);
  g_usable = false;
  CHECK(get(&found, &g_context, &key) != 0);
  g_usable = true;
  headrace::driverabi::destroy_context_storage(&g_context);
  headrace::driverabi::destroy_context_storage(&g_context);
  CHECK(g_destroyed == 1);
  CHECK(get(&found, &g_context, &key) != 0);
  CHECK(put(&g_context, &key, &value, nullptr) == 0);
  CHECK(erase(&g_context, &key) == 0);
  CHECK(erase(&g_context, &key) != 0);
}

TEST_CASE("integrity check: fixed answers, and a digest that depends on every part") {
  void** const checks = check_table();
  const auto check =
      reinterpret_cast<int (*)(std::uint32_t, std::uint64_t, std::uint8_t*)>(checks[1]);
  std::uint8_t first[16];
  std::uint8_t second[16];
  CHECK(check(13000, 1, first) == 0);
  CHECK(check(12090, 2, second) == 0);
  CHECK(std::memcmp(first, second, 16) == 0);
  CHECK(check(13001, 1, second) == 0);
  CHECK(std::memcmp(first, second, 8) != 0);
  CHECK(std::memcmp(first + 8, second + 8, 8) == 0);

  CHECK(check(13002, 1000, first) == 0);
  headrace::driverabi::IntegrityQuestion question;
  question.driver_version = 13000;
  question.version = 13002;
  question.process = static_cast<std::uint32_t>(getpid());
  question.thread = static_cast<std::uint32_t>(pthread_self());
  question.runtime_table = reinterpret_cast<std::uintptr_t>(runtime_table());
  question.check_table = reinterpret_cast<std::uintptr_t>(checks);
  question.check_function = reinterpret_cast<std::uintptr_t>(checks[1]);
  question.seconds = 1000;
  std::vector<DeviceIdentity> devices(2);
  kHooks.device_identity(0, &devices[0]);
  kHooks.device_identity(1, &devices[1]);
  CHECK(std::memcmp(headrace::driverabi::integrity_answer(question, devices).data(), first, 16) ==
        0);
  question.seconds = 1001;
  CHECK(std::memcmp(headrace::driverabi::integrity_answer(question, devices).data(), first, 16) !=
        0);
}
