// The parts of the worker that need no connection: permits, blobs, images, options, memory,
// handles.
#include <doctest/doctest.h>
#include <elf.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <zstd.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "common/unique_fd.h"
#include "gen/messages.h"
#include "worker/blobs.h"
#include "worker/bodies/image_bounds.h"
#include "worker/bodies/jit.h"
#include "worker/handle_table.h"
#include "worker/memory_account.h"
#include "worker/permits.h"
#include "worker/waiter_pool.h"

namespace headrace::worker {
namespace {

constexpr std::uint64_t mib = 1 << 20;

TEST_CASE("every message from a client has its phases, and no other") {
  const Phase phases[] = {Phase::hello, Phase::agent, Phase::session, Phase::attached};
  for (unsigned type = 0; type < 0x1000; ++type) {
    const protocol::MessageInfo* info = protocol::find_message(static_cast<std::uint16_t>(type));
    for (const Phase phase : phases) {
      if (!permitted(phase, static_cast<std::uint16_t>(type))) continue;
      REQUIRE(info != nullptr);
      CHECK(info->sender != protocol::Sender::server);
      CHECK(info->phase != protocol::Phase::broker);
      CHECK(info->phase != protocol::Phase::enrolling);
    }
  }
  CHECK(permitted(Phase::attached, 0x1000));
  CHECK(permitted(Phase::attached, 0xffff));
  CHECK_FALSE(permitted(Phase::session, 0x1000));
  CHECK(permitted(Phase::hello, protocol::Hello::kType));
  CHECK_FALSE(permitted(Phase::hello, protocol::Ping::kType));
}

TEST_CASE("blobs come in order and go out whole") {
  Blobs blobs;
  const std::uint64_t name = make_handle(HandleKind::blob, 1);
  const std::string text = "some image";
  const std::span<const std::uint8_t> bytes(reinterpret_cast<const std::uint8_t*>(text.data()),
                                            text.size());
  CHECK(blobs.begin(name, text.size(), text.size(), 0).empty());
  CHECK_FALSE(blobs.begin(name, 1, 1, 0).empty());
  Blob out;
  CHECK(blobs.data(name, 0, bytes.first(4)).empty());
  CHECK_FALSE(blobs.data(name, 5, bytes.subspan(5)).empty());
  CHECK(blobs.data(name, 4, bytes.subspan(4)).empty());
  REQUIRE(blobs.take(name, out));
  CHECK(std::memcmp(out.data.get(), "some image", 11) == 0);  // with the zero byte
  CHECK_FALSE(blobs.take(name, out));
  CHECK(blobs.begin(name, 5, 5, 0).empty());
  CHECK_FALSE(blobs.take(name, out));  // taken before it is complete: gone
}

TEST_CASE("compressed blobs must be what they say") {
  const std::string text(100'000, 'k');
  std::vector<std::uint8_t> packed(ZSTD_compressBound(text.size()));
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  const std::uint64_t name = make_handle(HandleKind::blob, 1);
  for (const std::uint64_t claimed : {text.size(), text.size() - 1, text.size() + 1}) {
    Blobs blobs;
    CHECK(blobs.begin(name, packed.size(), claimed, 1).empty());
    CHECK(blobs.data(name, 0, packed).empty());
    Blob out;
    CHECK(blobs.take(name, out) == (claimed == text.size()));
  }
}

TEST_CASE("images that point outside themselves are refused") {
  using bodies::image_within;
  std::vector<std::uint8_t> elf(sizeof(Elf64_Ehdr) + sizeof(Elf64_Shdr));
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_shoff = sizeof header;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 1;
  Elf64_Shdr section{};
  section.sh_type = SHT_PROGBITS;
  section.sh_size = 8;
  const auto built = [&] {
    std::memcpy(elf.data(), &header, sizeof header);
    std::memcpy(elf.data() + sizeof header, &section, sizeof section);
    return image_within(elf.data(), elf.size());
  };
  CHECK(built());
  section.sh_offset = UINT64_MAX;
  CHECK_FALSE(built());
  section.sh_offset = 0;
  header.e_shnum = 2;
  CHECK_FALSE(built());

  std::vector<std::uint8_t> fat(16 + 64 + 8);
  const std::uint32_t magic = 0xba55ed50, entry_header = 64;
  const std::uint16_t own_header = 16;
  std::uint64_t entries = 72, payload = 8;
  const auto packed = [&] {
    std::memcpy(fat.data(), &magic, 4);
    std::memcpy(fat.data() + 6, &own_header, 2);
    std::memcpy(fat.data() + 8, &entries, 8);
    std::memcpy(fat.data() + 20, &entry_header, 4);
    std::memcpy(fat.data() + 24, &payload, 8);
    return image_within(fat.data(), fat.size());
  };
  CHECK(packed());
  payload = 9;
  CHECK_FALSE(packed());
  payload = UINT64_MAX - 60;
  CHECK_FALSE(packed());
  payload = 8;
  entries = 73;
  CHECK_FALSE(packed());
  const std::uint32_t wrapper = 0x466243b1;
  CHECK_FALSE(image_within(reinterpret_cast<const std::uint8_t*>(&wrapper), sizeof wrapper));
  CHECK(image_within(reinterpret_cast<const std::uint8_t*>(".version 8.0"), 12));
}

TEST_CASE("options that hold a client's pointers are not passed on") {
  bodies::JitOptions options;
  CHECK(options.read({{CU_JIT_OPTIMIZATION_LEVEL, 3},
                      {CU_JIT_ERROR_LOG_BUFFER, 0xdead},
                      {CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, 1ull << 40},
                      {CU_JIT_WALL_TIME, 0}}));
  CHECK(options.count() == 4);
  for (unsigned i = 0; i < options.count(); ++i) {
    CHECK(options.values()[i] != reinterpret_cast<void*>(0xdead));
  }
  calls::CuModuleLoadDataExReply reply;
  options.tell(CUDA_ERROR_INVALID_PTX, {}, reply);
  CHECK(reply.load_result == CUDA_ERROR_INVALID_PTX);
  CHECK(reply.error_log.empty());
  bodies::JitOptions bad;
  CHECK_FALSE(bad.read({{CU_JIT_GLOBAL_SYMBOL_ADDRESSES, 0x1000}}));
  CHECK_FALSE(bad.read({{12345, 0}}));
}

TEST_CASE("handles end with their context") {
  HandleTable table(3);
  const std::uint64_t one = make_handle(HandleKind::stream, 1),
                      two = make_handle(HandleKind::event, 1);
  table.add(one, {11, 100, 0, 0, nullptr});
  table.add(two, {22, 200, 0, 7, nullptr});
  CHECK(table.find(HandleKind::event, one) == nullptr);
  CHECK(table.find(HandleKind::stream, one)->object == 11);
  std::uint64_t charged = 0;
  table.remove_context(200, [&](const HandleTable::Entry& entry) { charged += entry.charged; });
  CHECK(charged == 7);
  CHECK(table.find(HandleKind::event, two) == nullptr);
  CHECK_FALSE(table.full());
}

TEST_CASE("work ends on the thread that runs completions") {
  WaiterPool pool;
  const std::thread::id here = std::this_thread::get_id();
  int done = 0;
  for (int i = 0; i < 50; ++i) {
    pool.submit([&]() -> WaiterPool::Completion {
      const std::thread::id worker = std::this_thread::get_id();
      return [&, worker] {
        CHECK(std::this_thread::get_id() == here);
        CHECK(worker != here);
        ++done;
      };
    });
  }
  while (done < 50) {
    pollfd ready{pool.fd(), POLLIN, 0};
    poll(&ready, 1, -1);
    pool.run_completions();
  }
  CHECK(pool.running() == 0);
}

// Answers memory requests like headraced, with one slice.
class TinyBroker {
 public:
  explicit TinyBroker(std::uint64_t limit) : limit_(limit) {
    char folder[] = "/tmp/headrace-test-XXXXXX";
    folder_ = mkdtemp(folder);
    path_ = folder_ + "/broker";
    listener_ = UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof address.sun_path - 1);
    REQUIRE(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(listen(listener_.get(), 1) == 0);
    thread_ = std::thread([this] { serve(); });
  }
  ~TinyBroker() {
    thread_.join();
    unlink(path_.c_str());
    rmdir(folder_.c_str());
  }
  const std::string& path() const { return path_; }
  std::uint64_t used() const { return used_; }
  int asked() const { return asked_; }

 private:
  void serve() {
    const UniqueFd peer(accept(listener_.get(), nullptr, nullptr));
    FrameReader in(max_payload_v1);
    for (;;) {
      Frame frame;
      if (in.next(frame) == FrameReader::Next::need_more) {
        const std::span<std::uint8_t> space = in.space();
        const ssize_t got = recv(peer.get(), space.data(), space.size(), 0);
        if (got <= 0) return;
        in.commit(static_cast<std::size_t>(got));
        continue;
      }
      protocol::MemoryRequest request;
      Reader reader(frame.payload);
      if (!protocol::MemoryRequest::decode(reader, request)) return;
      ++asked_;
      const bool granted =
          request.delta <= 0 || used_ + static_cast<std::uint64_t>(request.delta) <= limit_;
      if (granted) used_ += static_cast<std::uint64_t>(request.delta);
      FrameWriter out;
      if (!out.add(protocol::MemoryReply::kType, protocol::MemoryReply{granted, used_, limit_},
                   flag_reply, frame.header.call)) {
        return;
      }
      if (send(peer.get(), out.pending().data(), out.pending_bytes(), MSG_NOSIGNAL) < 0) return;
    }
  }

  std::uint64_t limit_;
  std::string folder_, path_;
  UniqueFd listener_;
  std::thread thread_;
  std::uint64_t used_ = 0;
  int asked_ = 0;
};

TEST_CASE("memory is asked for in granules and is exact at the end") {
  const std::uint64_t limit = 9 * mib + 512;  // no whole number of granules
  TinyBroker broker(limit);
  Result<BrokerClient> client = BrokerClient::connect(broker.path());
  REQUIRE(client);
  MemoryAccount account(*client, {limit});
  for (int i = 0; i < 1000; ++i) CHECK(account.charge(0, 512));
  CHECK(broker.asked() == 1);
  CHECK(account.info(0).free == limit - 1000 * 512);
  CHECK(account.charge(0, limit - 1000 * 512));
  CHECK(account.info(0).free == 0);
  CHECK_FALSE(account.charge(0, 512));
  CHECK_FALSE(account.charge(0, UINT64_MAX - 100));
  account.give_back(0, limit);
  const MemoryAccount::Info info = account.info(0);
  CHECK(info.free == limit);
  CHECK(info.total == limit);
  CHECK(broker.used() == 0);
}

}  // namespace
}  // namespace headrace::worker
