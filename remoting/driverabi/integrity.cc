#include "driverabi/integrity.h"

#include <cstring>
#include <vector>

#include "driverabi/md2.h"

namespace headrace::driverabi {
namespace {

// Constants that the ZLUDA project has published (see NOTICE).
constexpr std::uint8_t kKey[16] = {0x14, 0x6a, 0xdd, 0xae, 0x53, 0xa9, 0xa7, 0x52,
                                   0xaa, 0x08, 0x41, 0x36, 0x0b, 0xf5, 0x5a, 0x9f};
constexpr std::uint64_t kFixedFirstHalf[2] = {0x3341181c03cb675cULL, 0x1841181c03cb675cULL};
constexpr std::uint64_t kFixedSecondHalf = 0x8ed383aa1f4cd1e8ULL;

template <typename T>
void put(std::vector<std::uint8_t>& message, const T& value) {
  const std::uint8_t* bytes = reinterpret_cast<const std::uint8_t*>(&value);
  message.insert(message.end(), bytes, bytes + sizeof(T));
}

}  // namespace

std::array<std::uint8_t, 16> integrity_answer(const IntegrityQuestion& question,
                                              std::span<const DeviceIdentity> devices) {
  std::array<std::uint8_t, 16> answer{};
  const std::uint32_t step = question.version % 10;
  if (step < 2) {
    std::memcpy(answer.data(), &kFixedFirstHalf[step], 8);
    std::memcpy(answer.data() + 8, &kFixedSecondHalf, 8);
    return answer;
  }
  std::vector<std::uint8_t> message;
  message.reserve(48 + 28 * devices.size());
  put(message, question.driver_version);
  put(message, question.version);
  put(message, question.process);
  put(message, question.thread);
  put(message, question.runtime_table);
  put(message, question.check_table);
  put(message, question.check_function);
  put(message, question.seconds);
  for (const DeviceIdentity& device : devices) {
    put(message, device.uuid);
    put(message, device.pci_domain);
    put(message, device.pci_bus);
    put(message, device.pci_device);
  }
  return hmac_md2(kKey, message);
}

}  // namespace headrace::driverabi
