#include "client/devices.h"

#include <cuda.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>
#include <string_view>

#include "client/process.h"

namespace headrace::client {
namespace {

// What the server's device can do but this release does not carry. Answering no keeps programs from
// choosing a way that would fail.
constexpr CUdevice_attribute not_carried[] = {
    CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY,
    CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
    CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
    CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH,
    CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES,
    CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
    CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES,
    CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT,
    CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS,
    CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED,
};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// -1 if no device, or more than one, is meant.
int find_device(const std::vector<protocol::Device>& devices, std::string_view word) {
  int index = -1;
  const std::from_chars_result number =
      std::from_chars(word.data(), word.data() + word.size(), index);
  if (number.ec == std::errc{} && number.ptr == word.data() + word.size()) {
    return index >= 0 && index < static_cast<int>(devices.size()) ? index : -1;
  }
  const std::string wanted = lower(word);
  if (!wanted.starts_with("gpu-") || wanted.size() <= 4) return -1;
  int found = -1;
  for (int i = 0; i < static_cast<int>(devices.size()); ++i) {
    if (!lower(uuid_text(devices[i].uuid.data())).starts_with(wanted)) continue;
    if (found >= 0) return -1;
    found = i;
  }
  return found;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

}  // namespace

std::vector<int> visible_devices(const std::vector<protocol::Device>& devices, const char* wanted) {
  std::vector<int> visible;
  if (wanted == nullptr) {
    for (int i = 0; i < static_cast<int>(devices.size()); ++i) visible.push_back(i);
    return visible;
  }
  std::string_view rest(wanted);
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const int device = find_device(devices, trim(rest.substr(0, comma)));
    if (device < 0) break;
    if (std::find(visible.begin(), visible.end(), device) != visible.end()) return {};
    visible.push_back(device);
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
  }
  return visible;
}

void make_devices(const protocol::Attached& attached, const char* wanted, Process& process) {
  for (const int index : visible_devices(attached.devices, wanted)) {
    const protocol::Device& described = attached.devices[static_cast<std::size_t>(index)];
    std::unique_ptr<Device> device = std::make_unique<Device>();
    device->ordinal = static_cast<int>(process.devices.size());
    device->wire_ordinal = index;
    device->name = described.name;
    device->uuid = described.uuid;
    device->pci_domain = described.pci_domain;
    device->pci_bus = described.pci_bus;
    device->pci_device = described.pci_device;
    device->total_memory = described.total_memory;
    device->priority_least = described.priority_least;
    device->priority_greatest = described.priority_greatest;
    device->software = described.software;
    const auto set = [&device](std::uint32_t key, std::int32_t value) {
      if (key >= Device::max_attributes) return;
      device->attributes[key] = value;
      device->known_attributes.set(key);
    };
    for (const protocol::Pair& pair : described.attributes) set(pair.key, pair.value);
    set(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, described.pci_domain);
    set(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, described.pci_bus);
    set(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, described.pci_device);
    set(CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD, 0);
    for (const CUdevice_attribute attribute : not_carried) {
      if (device->known_attributes.test(attribute)) set(attribute, 0);
    }
    // The server's twin of host memory must have the address that the program knows.
    if (device->attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM) == 0) {
      set(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 0);
    }
    const std::uint64_t handle = process.handles.make(HandleKind::context);
    const std::shared_ptr<Context> primary =
        std::make_shared<Context>(handle, device.get(), /*is_primary=*/true);
    device->primary = primary.get();
    process.contexts.insert(handle, primary);
    process.devices.push_back(std::move(device));
  }
}

}  // namespace headrace::client
