/* An NVML with devices from FAKE_NVML ("Name:MiB,Name:MiB"), for tests of the inventory.
   A name that ends in "-mig" is divided into two instances, numbered 0 and 2. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9 };

typedef struct {
  int index, instance;
  char name[64];
  unsigned long long mib;
} device;
static device devices[16];
static int count;

EXPORT int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  const char* text = getenv("FAKE_NVML");
  if (!text) return DRIVER_NOT_LOADED;
  char copy[512];
  snprintf(copy, sizeof copy, "%s", text);
  count = 0;
  for (char* part = strtok(copy, ","); part && count < 8; part = strtok(NULL, ",")) {
    device* d = &devices[count];
    d->index = count++;
    d->instance = -1;
    sscanf(part, "%63[^:]:%llu", d->name, &d->mib);
  }
  return SUCCESS;
}
EXPORT int nvmlShutdown(void) { return SUCCESS; }
EXPORT const char* nvmlErrorString(int e) {
  return e == DRIVER_NOT_LOADED ? "Driver Not Loaded" : "Error";
}
EXPORT int nvmlSystemGetDriverVersion(char* out, unsigned n) {
  snprintf(out, n, "580.1");
  return SUCCESS;
}
EXPORT int nvmlSystemGetCudaDriverVersion_v2(int* out) {
  *out = 13000;
  return SUCCESS;
}
EXPORT int nvmlDeviceGetCount_v2(unsigned* out) {
  *out = (unsigned)count;
  return SUCCESS;
}
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned i, device** out) {
  if ((int)i >= count) return INVALID_ARGUMENT;
  *out = &devices[i];
  return SUCCESS;
}
EXPORT int nvmlDeviceGetUUID(device* d, char* out, unsigned n) {
  snprintf(out, n, "%s-00000000-0000-4000-8000-0000000000%02x", d->instance < 0 ? "GPU" : "MIG",
           d->index * 16 + d->instance + 1);
  return SUCCESS;
}
EXPORT int nvmlDeviceGetName(device* d, char* out, unsigned n) {
  snprintf(out, n, "%s", d->name);
  return SUCCESS;
}
EXPORT int nvmlDeviceGetMemoryInfo(device* d, unsigned long long* out) {
  out[0] = d->mib << 20;
  out[1] = d->mib << 20;
  out[2] = 0;
  return SUCCESS;
}
static int divided(const device* d) {
  size_t n = strlen(d->name);
  return d->instance < 0 && n > 4 && strcmp(d->name + n - 4, "-mig") == 0;
}
EXPORT int nvmlDeviceGetMigMode(device* d, unsigned* now, unsigned* pending) {
  if (!divided(d)) return NOT_SUPPORTED;
  *now = *pending = 1;
  return SUCCESS;
}
EXPORT int nvmlDeviceGetMaxMigDeviceCount(device* d, unsigned* out) {
  (void)d;
  *out = 4;
  return SUCCESS;
}
EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(device* d, unsigned i, device** out) {
  if (i != 0 && i != 2) return NOT_FOUND;
  device* instance = &devices[8 + i];
  *instance = *d;
  instance->instance = (int)i;
  instance->mib = d->mib / 2;
  *out = instance;
  return SUCCESS;
}
