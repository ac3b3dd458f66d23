#include "worker/driver_loader.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "common/unique_fd.h"

extern char** environ;

namespace headrace::worker {
namespace {

// What our client library carries in its file, so that it is known before any of its code runs.
constexpr std::string_view client_marker = "headrace-client-library";

void clear_environment() {
  std::vector<std::string> names;
  for (char** one = environ; *one != nullptr; ++one) {
    const std::string_view entry(*one);
    if (entry.starts_with("LD_") || entry.starts_with("CUDA_")) {
      names.emplace_back(entry.substr(0, entry.find('=')));
    }
  }
  for (const std::string& name : names) unsetenv(name.c_str());
}

Result<void> refuse_own_client(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!fd || fstat(fd.get(), &info) != 0) {
    return system_error(ErrorKind::not_found, "cannot open the driver library " + path, errno);
  }
  const std::size_t size = static_cast<std::size_t>(info.st_size);
  if (size == 0) return {};
  void* mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (mapped == MAP_FAILED) {
    return system_error(ErrorKind::internal, "cannot read the driver library " + path, errno);
  }
  const bool ours = memmem(mapped, size, client_marker.data(), client_marker.size()) != nullptr;
  munmap(mapped, size);
  if (!ours) return {};
  return Error{ErrorKind::invalid_input, path + " is Headrace's own client library, not a driver",
               "set the appliance's driver library"};
}

std::string uuid_text(const std::uint8_t* bytes) {
  std::string text;
  constexpr char digits[] = "0123456789abcdef";
  for (int i = 0; i < 16; ++i) {
    text += digits[bytes[i] >> 4];
    text += digits[bytes[i] & 15];
  }
  return text;
}

// Attributes whose truth here is not the device's: what is not carried is not promised.
int carried_value(CUdevice_attribute attribute, int value, const protocol::GrantedDevice& granted) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      return granted.pci_bus;
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
      return granted.pci_device;
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
      return granted.pci_domain;
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST:
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH:
      return 0;
    default:
      return value;
  }
}

void read_priorities(const DriverTable& driver, CUdevice device, bool software,
                     protocol::Device& out) {
  int supported = 0;
  driver.cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, device);
  if (supported == 0) return;
  // The range is a context's to tell. Making one costs a real GPU a fifth of a second and its
  // memory, so there the range that all of them have had is given; the driver clamps to its own.
  out.priority_greatest = -5;
  CUcontext context = nullptr;
  if (!software || driver.cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) return;
  driver.cuCtxSetCurrent(context);
  driver.cuCtxGetStreamPriorityRange(&out.priority_least, &out.priority_greatest);
  driver.cuCtxSetCurrent(nullptr);
  driver.cuDevicePrimaryCtxRelease_v2(device);
}

}  // namespace

Result<std::unique_ptr<DriverTable>> load_driver(const protocol::SessionGrant& grant) {
  if (grant.driver_library.empty() || grant.driver_library.front() != '/') {
    return Error{ErrorKind::invalid_input, "the driver library's path is not absolute", ""};
  }
  if (Result<void> checked = refuse_own_client(grant.driver_library); !checked) {
    return checked.error();
  }
  clear_environment();
  for (const protocol::Setting& one : grant.environment) {
    setenv(one.name.c_str(), one.value.c_str(), 1);
  }
  void* library = dlopen(grant.driver_library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    return Error{ErrorKind::not_found,
                 std::string("cannot load the driver: ") + (why != nullptr ? why : "unknown"), ""};
  }
  std::unique_ptr<DriverTable> driver = std::make_unique<DriverTable>();
  driver->load(library);
  if (driver->cuInit == nullptr || driver->cuDeviceGetCount == nullptr) {
    return Error{ErrorKind::invalid_input, grant.driver_library + " is no CUDA driver", ""};
  }
  if (const CUresult result = driver->cuInit(0); result != CUDA_SUCCESS) {
    return Error{ErrorKind::unavailable,
                 "the driver does not start: cuInit says " + std::to_string(result), ""};
  }
  return driver;
}

Result<std::vector<SessionDevice>> find_devices(const DriverTable& driver,
                                                const protocol::SessionGrant& grant) {
  int count = 0;
  driver.cuDeviceGetCount(&count);
  std::vector<SessionDevice> devices;
  for (const protocol::GrantedDevice& granted : grant.devices) {
    bool found = false;
    for (int i = 0; i < count && !found; ++i) {
      CUdevice device = 0;
      CUuuid uuid{};
      if (driver.cuDeviceGet(&device, i) != CUDA_SUCCESS ||
          driver.cuDeviceGetUuid_v2(&uuid, device) != CUDA_SUCCESS) {
        continue;
      }
      found = std::memcmp(uuid.bytes, granted.physical_uuid.data(), sizeof uuid.bytes) == 0;
      if (found) devices.push_back(SessionDevice{device, granted.memory_bytes});
    }
    if (!found) {
      return Error{
          ErrorKind::not_found,
          "the driver does not know the granted GPU " + uuid_text(granted.physical_uuid.data()),
          ""};
    }
  }
  return devices;
}

protocol::Device describe_device(const DriverTable& driver, const SessionDevice& device,
                                 const protocol::GrantedDevice& granted, bool software) {
  protocol::Device out;
  out.uuid = granted.slice_uuid;
  out.pci_domain = granted.pci_domain;
  out.pci_bus = granted.pci_bus;
  out.pci_device = granted.pci_device;
  out.name = granted.name;
  out.total_memory = granted.memory_bytes;
  out.software = software;
  read_priorities(driver, device.device, software, out);
  for (int id = 1; id < CU_DEVICE_ATTRIBUTE_MAX; ++id) {
    const CUdevice_attribute attribute = static_cast<CUdevice_attribute>(id);
    int value = 0;
    if (driver.cuDeviceGetAttribute(&value, attribute, device.device) != CUDA_SUCCESS) continue;
    out.attributes.push_back(
        {static_cast<std::uint32_t>(id), carried_value(attribute, value, granted)});
  }
  return out;
}

}  // namespace headrace::worker
