#include "worker/transfers.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "worker/session.h"

namespace headrace::worker {
namespace {

// Up to here a driver copies pageable memory away before it returns, also when the stream is busy.
constexpr std::size_t taken_at_call = 64 << 10;

}  // namespace

CUresult Marks::record(std::uint64_t context, CUstream stream, CUevent& mark) {
  std::vector<CUevent>& free = free_[context];
  if (free.empty()) {
    const CUresult made =
        driver_.cuEventCreate(&mark, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC);
    if (made != CUDA_SUCCESS) return made;
  } else {
    mark = free.back();
    free.pop_back();
  }
  const CUresult result = driver_.cuEventRecord(mark, stream);
  if (result != CUDA_SUCCESS) recycle(context, mark);
  return result;
}

void Marks::recycle(std::uint64_t context, CUevent mark) { free_[context].push_back(mark); }

CUresult Marks::state(std::uint64_t context, CUstream stream) {
  if (stream != nullptr && stream != CU_STREAM_LEGACY) return driver_.cuStreamQuery(stream);
  CUevent mark = nullptr;
  CUresult result = record(context, stream, mark);
  if (result != CUDA_SUCCESS) return result;
  result = driver_.cuEventQuery(mark);
  recycle(context, mark);
  return result;
}

// ------------------------------------------------------------------ to the device

bool Uploads::may_wait_for_client() const { return session_.callbacks().outstanding(); }

void* Uploads::take_block(std::uint64_t context) {
  std::vector<void*>& free = free_[context];
  if (!free.empty()) {
    void* block = free.back();
    free.pop_back();
    return block;
  }
  void* block = nullptr;
  return driver_.cuMemHostAlloc(&block, block_size, 0) == CUDA_SUCCESS ? block : nullptr;
}

CUresult Uploads::copy(CUdeviceptr to, std::span<const std::uint8_t> from, CUstream stream) {
  if (from.size() <= taken_at_call ||
      session_.marks().state(session_.current().handle, stream) != CUDA_ERROR_NOT_READY) {
    return driver_.cuMemcpyHtoDAsync_v2(to, from.data(), from.size(), stream);
  }
  while (!from.empty()) {
    const std::size_t size = std::min(from.size(), block_size);
    const CUresult result = copy_block(to, from.first(size), stream);
    if (result != CUDA_SUCCESS) return result;
    from = from.subspan(size);
    to += size;
  }
  return CUDA_SUCCESS;
}

CUresult Uploads::copy_block(CUdeviceptr to, std::span<const std::uint8_t> from, CUstream stream) {
  void* block = take_block(session_.current().handle);
  if (block == nullptr) return driver_.cuMemcpyHtoDAsync_v2(to, from.data(), from.size(), stream);
  std::memcpy(block, from.data(), from.size());
  return arrives_later(block, driver_.cuMemcpyHtoDAsync_v2(to, block, from.size(), stream), stream);
}

CUresult Uploads::copy_rows(CUDA_MEMCPY3D copy, std::span<const std::uint8_t> from,
                            CUstream stream) {
  void* block = from.size() <= block_size ? take_block(session_.current().handle) : nullptr;
  if (block == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  std::memcpy(block, from.data(), from.size());
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = block;
  return arrives_later(block, driver_.cuMemcpy3DAsync_v2(&copy, stream), stream);
}

CUresult Uploads::arrives_later(void* block, CUresult result, CUstream stream) {
  const SessionContext& context = session_.current();
  CUevent mark = nullptr;
  if (result == CUDA_SUCCESS) result = session_.marks().record(context.handle, stream, mark);
  if (result != CUDA_SUCCESS) {
    free_[context.handle].push_back(block);
    return result;
  }
  ++busy_;
  session_.pool().submit([this, native = context.context, handle = context.handle, block, mark,
                          life = session_.life(context.handle)]() -> WaiterPool::Completion {
    driver_.cuCtxSetCurrent(native);
    driver_.cuEventSynchronize(mark);
    return [this, handle, block, mark, life] {
      --busy_;
      if (session_.life(handle) != life) return;  // the context took block and mark with it
      session_.marks().recycle(handle, mark);
      free_[handle].push_back(block);
    };
  });
  return CUDA_SUCCESS;
}

// ------------------------------------------------------------------ to the host

CUresult Downloads::begin(std::uint16_t type, std::uint32_t number, const Source& source,
                          CUstream stream) {
  const SessionContext& context = session_.current();
  Download download{type,           number, source, context.handle, session_.life(context.handle),
                    context.context};
  const bool ordered = source.bytes() <= ordered_limit;
  const CUresult state = session_.marks().state(context.handle, stream);
  if (state == CUDA_ERROR_NOT_READY) {
    return ordered ? begin_staged(download, stream) : begin_waiting(download, stream);
  }
  if (state != CUDA_SUCCESS) return state;
  if (ordered) {
    send_all(download);
  } else {
    ready_.push_back(download);
  }
  return CUDA_SUCCESS;
}

// The stream is busy: the copy takes its place in it, into memory of ours.
CUresult Downloads::begin_staged(Download download, CUstream stream) {
  void* block = nullptr;
  const Source& from = download.source;
  if (from.bytes() > staged_limit - staged_bytes_) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = driver_.cuMemHostAlloc(&block, from.bytes(), 0);
  if (result != CUDA_SUCCESS) return result;
  download.staged = static_cast<std::uint8_t*>(block);
  staged_bytes_ += from.bytes();
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from.address;
  copy.srcPitch = from.pitch;
  copy.srcHeight = from.pitch == 0 ? 0 : from.slice_pitch / from.pitch;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = block;
  copy.dstPitch = from.width;
  copy.dstHeight = from.height;
  copy.WidthInBytes = from.width;
  copy.Height = from.height;
  copy.Depth = from.depth;
  if (from.array != nullptr) {
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.srcArray = from.array;
    copy.srcXInBytes = from.x;
    copy.srcY = from.y;
    copy.srcZ = from.z;
  }
  const bool linear = from.array == nullptr && from.height == 1 && from.depth == 1;
  result = linear ? driver_.cuMemcpyDtoHAsync_v2(block, from.address, from.width, stream)
                  : driver_.cuMemcpy3DAsync_v2(&copy, stream);
  CUevent mark = nullptr;
  if (result == CUDA_SUCCESS) result = session_.marks().record(download.context, stream, mark);
  if (result != CUDA_SUCCESS) {
    drop_staged(download);
    return result;
  }
  session_.pool().submit([this, download, mark]() -> WaiterPool::Completion {
    driver_.cuCtxSetCurrent(download.native);
    const CUresult waited = driver_.cuEventSynchronize(mark);
    return [this, download, mark, waited] {
      if (!alive(download)) {
        staged_bytes_ -= download.source.bytes();
        return;
      }
      session_.marks().recycle(download.context, mark);
      // Sent as the client takes it: many may become ready at one time.
      if (waited == CUDA_SUCCESS) return ready_.push_back(download);
      finish(download, waited);
      drop_staged(download);
    };
  });
  return CUDA_SUCCESS;
}

// Too large to keep on the host: it is read once the stream has come to this place.
CUresult Downloads::begin_waiting(Download download, CUstream stream) {
  CUevent mark = nullptr;
  const CUresult result = session_.marks().record(download.context, stream, mark);
  if (result != CUDA_SUCCESS) return result;
  session_.pool().submit([this, download, mark]() -> WaiterPool::Completion {
    driver_.cuCtxSetCurrent(download.native);
    const CUresult waited = driver_.cuEventSynchronize(mark);
    return [this, download, mark, waited] {
      if (!alive(download)) return;
      session_.marks().recycle(download.context, mark);
      if (waited != CUDA_SUCCESS) return finish(download, waited);
      ready_.push_back(download);
    };
  });
  return CUDA_SUCCESS;
}

bool Downloads::pump() {
  while (!ready_.empty() && session_.out().pending_bytes() < output_enough) {
    if (send_piece(ready_.front())) continue;
    drop_staged(ready_.front());
    ready_.pop_front();
  }
  return !ready_.empty();
}

void Downloads::drop_context(std::uint64_t context) {
  streams_.erase(context);
  std::erase_if(ready_, [&](const Download& one) {
    if (one.context != context) return false;
    finish(one, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    staged_bytes_ -= one.staged != nullptr ? one.source.bytes() : 0;  // the context took the block
    return true;
  });
}

void Downloads::drop_staged(const Download& download) {
  if (download.staged == nullptr) return;
  driver_.cuMemFreeHost(download.staged);
  staged_bytes_ -= download.source.bytes();
}

std::uint64_t Downloads::piece_size(const Download& download) const {
  const Source& from = download.source;
  const std::uint64_t left = from.bytes() - download.done;
  if (download.staged != nullptr || (from.height == 1 && from.depth == 1)) {
    return std::min(left, piece);
  }
  // Whole rows of one slice, or a part of one row.
  const std::uint64_t in_row = download.done % from.width;
  if (in_row != 0 || from.width >= piece) return std::min(from.width - in_row, piece);
  const std::uint64_t row = download.done / from.width % from.height;
  return std::min(from.height - row, piece / from.width) * from.width;
}

CUresult Downloads::copy_piece(const Download& download, std::uint8_t* into, std::uint64_t bytes) {
  if (download.staged != nullptr) {
    std::memcpy(into, download.staged + download.done, bytes);
    return CUDA_SUCCESS;
  }
  CUstream stream = nullptr;
  if (download.context != session_.current().handle) {
    driver_.cuCtxSetCurrent(download.native);
    session_.current_changed();
  } else if (CUresult result = session_.enter(); result != CUDA_SUCCESS) {
    return result;
  }
  if (CUresult result = copy_stream(download.context, stream); result != CUDA_SUCCESS) {
    return result;
  }
  // To pageable memory these return when the bytes are there.
  const Source& from = download.source;
  const std::uint64_t row = download.done / from.width;
  if (from.array != nullptr) {
    CUDA_MEMCPY3D box{};
    box.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    box.srcArray = from.array;
    box.srcXInBytes = from.x + download.done % from.width;
    box.srcY = from.y + row % from.height;
    box.srcZ = from.z + row / from.height;
    box.dstMemoryType = CU_MEMORYTYPE_HOST;
    box.dstHost = into;
    box.WidthInBytes = std::min(bytes, from.width);
    box.Height = bytes / box.WidthInBytes;
    box.Depth = 1;
    box.dstPitch = box.WidthInBytes;
    box.dstHeight = box.Height;
    return driver_.cuMemcpy3DAsync_v2(&box, stream);
  }
  const CUdeviceptr address = from.address + row / from.height * from.slice_pitch +
                              row % from.height * from.pitch + download.done % from.width;
  if (bytes <= from.width) return driver_.cuMemcpyDtoHAsync_v2(into, address, bytes, stream);
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = address;
  copy.srcPitch = from.pitch;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = into;
  copy.dstPitch = from.width;
  copy.WidthInBytes = from.width;
  copy.Height = bytes / from.width;
  return driver_.cuMemcpy2DAsync_v2(&copy, stream);
}

bool Downloads::send_piece(Download& download) {
  const std::uint64_t total = download.source.bytes();
  if (download.done == total) {
    finish(download, CUDA_SUCCESS);
    return false;
  }
  const std::uint64_t bytes = piece_size(download);
  FrameWriter& out = session_.out();
  const std::size_t place = out.begin(download.type, flag_reply | flag_more, download.number);
  const CUresult result = copy_piece(download, out.out().extend(bytes), bytes);
  if (result != CUDA_SUCCESS) {
    out.drop(place);
    finish(download, result);
    return false;
  }
  out.end(place);
  download.done += bytes;
  return true;
}

void Downloads::send_all(Download& download) {
  while (send_piece(download)) {
  }
}

bool Downloads::alive(const Download& download) {
  if (session_.life(download.context) == download.life) return true;
  finish(download, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  return false;
}

void Downloads::finish(const Download& download, CUresult result) {
  session_.answer({download.type, download.number}, result);
}

CUresult Downloads::copy_stream(std::uint64_t context, CUstream& out) {
  const auto found = streams_.find(context);
  if (found != streams_.end()) {
    out = found->second;
    return CUDA_SUCCESS;
  }
  const CUresult result = driver_.cuStreamCreate(&out, CU_STREAM_NON_BLOCKING);
  if (result == CUDA_SUCCESS) streams_[context] = out;
  return result;
}

}  // namespace headrace::worker
