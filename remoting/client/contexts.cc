#include "client/contexts.h"

#include "client/process.h"
#include "driverabi/export_tables.h"

namespace headrace::client {

Context* find_context(CUcontext handle) {
  // Contexts are never taken out of their table, so the pointer outlives the shared one.
  Context* const context = process().contexts.find(reinterpret_cast<std::uint64_t>(handle)).get();
  if (context == nullptr || (!context->primary && !context->alive.load())) return nullptr;
  return context;
}

void forget_contents(Context& context) {
  Process& here = process();
  context.life.fetch_add(1);
  context.sticky.store(0);
  const auto within = [&context](const auto& object) { return object.context == &context; };
  here.callbacks.drop_context(context.id);
  here.streams.take_if(within);
  here.events.take_if(within);
  here.arrays.take_if(within);
  here.functions.take_if(within);
  here.modules.take_if(within);
  here.libraries.take_if([&context](Library& library) {
    const std::lock_guard<std::mutex> lock(library.mutex);
    library.modules.erase(context.id);
    return false;
  });
  for (const MemoryRange& range : here.memory.take_all_of(&context)) {
    if (range.host()) here.host_twins.forget(range);
    if (range.kind == RangeKind::host_allocated) {
      here.host_twins.pages().release(range.base, range.size);
    }
  }
  driverabi::destroy_context_storage(context.handle());
}

}  // namespace headrace::client
