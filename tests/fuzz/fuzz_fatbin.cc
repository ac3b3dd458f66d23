// The fatbin container: what can be read is unpacked, chosen from, and written into a container
// that reads the same again.
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <vector>

#include "driverabi/fatbin.h"

namespace {

using namespace headrace::driverabi;

void require(bool holds) {
  if (!holds) std::abort();
}

bool same(Bytes one, Bytes other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Bytes bytes(data, size);
  const std::optional<std::uint64_t> whole =
      fatbin_size(bytes.first(std::min<std::size_t>(16, size)));
  const std::optional<std::vector<FatbinEntry>> entries = read_fatbin(bytes);
  if (!entries) return 0;
  require(whole.has_value() && *whole <= size);
  constexpr std::uint64_t limit = 1 << 20;
  std::vector<std::uint8_t> plain;
  for (const FatbinEntry& entry : *entries) {
    if (unpack(entry, limit, plain)) require(plain.size() <= limit);
  }
  for (const std::uint32_t sm : {75u, 80u, 90u, 120u}) {
    const Selection chosen = select_entries(*entries, sm);
    require(chosen.sass < static_cast<int>(entries->size()));
    require(chosen.ptx < static_cast<int>(entries->size()));
  }
  const std::vector<std::uint8_t> written = write_fatbin(*entries);
  const std::optional<std::vector<FatbinEntry>> again = read_fatbin(written);
  require(again.has_value() && again->size() == entries->size());
  for (std::size_t i = 0; i < entries->size(); ++i) {
    require(same((*again)[i].payload, (*entries)[i].payload));
    require((*again)[i].arch == (*entries)[i].arch && (*again)[i].kind == (*entries)[i].kind);
  }
  return 0;
}
