#include <dlfcn.h>

#include <new>

#include "softgpu/exec/executor.h"

namespace headrace::softgpu {

std::unique_ptr<KernelImage> KernelImage::load(const std::string& path, std::string& error) {
  std::unique_ptr<KernelImage> image(new (std::nothrow) KernelImage);
  if (!image) {
    error = "out of memory";
    return nullptr;
  }
  image->handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (image->handle_ == nullptr) {
    const char* reason = dlerror();
    error = reason != nullptr ? reason : path + ": cannot be loaded";
    return nullptr;
  }
  image->desc_ = static_cast<const sg_kernel_desc*>(dlsym(image->handle_, SG_KERNEL_DESC_SYMBOL));
  if (image->desc_ == nullptr) {
    error = path + ": exports no " SG_KERNEL_DESC_SYMBOL;
    return nullptr;
  }
  if (image->desc_->abi_version != SG_ABI_VERSION) {
    error = path + ": made for kernel ABI " + std::to_string(image->desc_->abi_version) +
            ", this library has " + std::to_string(SG_ABI_VERSION);
    return nullptr;
  }
  return image;
}

KernelImage::~KernelImage() {
  if (handle_ != nullptr) dlclose(handle_);
}

}  // namespace headrace::softgpu
