#include "remoting/softgpu/device/identity.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "remoting/softgpu/device/settings.h"

namespace headrace::softgpu {
namespace {

// What tells this machine from others. A state directory of its own is a machine of its own: two
// appliances on one test host must not show the same GPUs.
std::string machine_text() {
  std::string out;
  std::ifstream file("/etc/machine-id");
  std::getline(file, out);
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return out + "\n" + host + "\n" + settings().state_dir;
}

std::uint64_t mix(const std::string& text, std::uint64_t seed) {
  std::uint64_t hash = 0xcbf29ce484222325ull ^ (seed * 0x9e3779b97f4a7c15ull);
  for (unsigned char c : text) hash = (hash ^ c) * 0x100000001b3ull;
  // FNV leaves the high bits of short texts weak; finish as MurmurHash3 does.
  hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccdull;
  hash = (hash ^ (hash >> 33)) * 0xc4ceb9fe1a85ec53ull;
  return hash ^ (hash >> 33);
}

std::array<unsigned char, 16> make_uuid(const std::string& machine, int index) {
  std::array<unsigned char, 16> out{};
  std::string text = machine + "#" + std::to_string(index);
  for (int half = 0; half < 2; ++half) {
    std::uint64_t word = mix(text, static_cast<std::uint64_t>(half) + 1);
    for (int i = 0; i < 8; ++i) {
      out[half * 8 + i] = static_cast<unsigned char>(word >> (8 * i));
    }
  }
  out[6] = static_cast<unsigned char>((out[6] & 0x0f) | 0x80);  // RFC 9562 version 8: own scheme
  out[8] = static_cast<unsigned char>((out[8] & 0x3f) | 0x80);
  return out;
}

std::vector<DeviceIdentity>* make_devices() {
  std::vector<DeviceIdentity>* out = new std::vector<DeviceIdentity>();
  const Settings& s = settings();
  std::string machine = machine_text();
  // Results of skipped kernels are worth nothing: whoever reads the name is told.
  const std::string name =
      s.skip_sass ? "Headrace Software GPU [SASS skipped]" : "Headrace Software GPU";
  for (std::size_t i = 0; i < s.device_bytes.size(); ++i) {
    int index = static_cast<int>(i);
    out->push_back({index, name, make_uuid(machine, index), 0, 1 + index, 0, s.device_bytes[i],
                    find_limits(s.cc_major, s.cc_minor)});
  }
  return out;
}

}  // namespace

std::string DeviceIdentity::uuid_text() const {
  std::string out = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", uuid[i]);
    if (i == 4 || i == 6 || i == 8 || i == 10) out += '-';
    out += two;
  }
  return out;
}

std::string DeviceIdentity::pci_text() const {
  char out[32];
  std::snprintf(out, sizeof out, "%04x:%02x:%02x.0", pci_domain, pci_bus, pci_device);
  return out;
}

const std::vector<DeviceIdentity>& machine_devices() {
  static const std::vector<DeviceIdentity>* cached = make_devices();
  return *cached;
}

std::vector<int> visible_devices() {
  const std::vector<DeviceIdentity>& all = machine_devices();
  std::vector<int> out;
  const Settings& s = settings();
  if (!s.has_visible_devices) {
    for (const DeviceIdentity& device : all) out.push_back(device.index);
    return out;
  }
  std::stringstream list(s.visible_devices);
  std::string entry;
  while (std::getline(list, entry, ',')) {
    int found = -1;
    if (entry.rfind("GPU-", 0) == 0) {
      for (const DeviceIdentity& device : all) {
        if (device.uuid_text().rfind(entry, 0) == 0) {
          if (found >= 0) return out;  // ambiguous prefix
          found = device.index;
        }
      }
    } else {
      char* end = nullptr;
      long index = std::strtol(entry.c_str(), &end, 10);
      if (end != entry.c_str() && *end == '\0' && index >= 0 &&
          index < static_cast<long>(all.size())) {
        found = static_cast<int>(index);
      }
    }
    if (found < 0) return out;
    if (std::find(out.begin(), out.end(), found) != out.end()) return {};  // named twice: none
    out.push_back(found);
  }
  return out;
}

int find_by_pci(const std::string& text) {
  unsigned domain = 0, bus = 0, device = 0, function = 0;
  if (std::sscanf(text.c_str(), "%x:%x:%x.%x", &domain, &bus, &device, &function) < 3) {
    domain = 0;
    if (std::sscanf(text.c_str(), "%x:%x.%x", &bus, &device, &function) < 2) return -1;
  }
  for (const DeviceIdentity& one : machine_devices()) {
    if (static_cast<unsigned>(one.pci_domain) == domain &&
        static_cast<unsigned>(one.pci_bus) == bus &&
        static_cast<unsigned>(one.pci_device) == device) {
      return one.index;
    }
  }
  return -1;
}

}  // namespace headrace::softgpu
