// The runtime's integrity check. Every CUDA runtime asks the library that it loaded for a keyed
// digest of things both sides know (versions, process, table addresses, devices). NOTICE says why
// and how we answer; the construction is HMAC-MD2 from the two RFCs.
#pragma once
#include <array>
#include <cstdint>
#include <span>

namespace headrace::driverabi {

// What a device says about itself; must equal what the library answers elsewhere.
struct DeviceIdentity {
  std::array<std::uint8_t, 16> uuid{};
  std::int32_t pci_domain = 0;
  std::int32_t pci_bus = 0;
  std::int32_t pci_device = 0;
};

struct IntegrityQuestion {
  std::uint32_t driver_version = 0;
  std::uint32_t version = 0;  // the argument: the runtime's version, plus 0, 1 or 2
  std::uint32_t process = 0;
  std::uint32_t thread = 0;  // low half of pthread_self()
  std::uint64_t runtime_table = 0;
  std::uint64_t check_table = 0;
  std::uint64_t check_function = 0;
  std::uint64_t seconds = 0;
};

std::array<std::uint8_t, 16> integrity_answer(const IntegrityQuestion& question,
                                              std::span<const DeviceIdentity> devices);

}  // namespace headrace::driverabi
