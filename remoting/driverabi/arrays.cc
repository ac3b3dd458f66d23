#include "driverabi/arrays.h"

namespace headrace::driverabi {
namespace {

// What devices of compute capability 8 and 9 allow.
constexpr std::uint64_t max_width_1d = 131072, max_side_2d = 131072, max_height_2d = 65536,
                        max_side_3d = 16384, max_layers = 2048, max_cube = 32768;

bool within(const CUDA_ARRAY3D_DESCRIPTOR& a, std::uint64_t width, std::uint64_t height,
            std::uint64_t depth) {
  return a.Width <= width && a.Height <= height && a.Depth <= depth;
}

CUresult check_size(const CUDA_ARRAY3D_DESCRIPTOR& a) {
  const bool layered = (a.Flags & CUDA_ARRAY3D_LAYERED) != 0;
  if (a.Width == 0 || (!layered && a.Height == 0 && a.Depth != 0)) return CUDA_ERROR_INVALID_VALUE;
  bool good = false;
  if ((a.Flags & CUDA_ARRAY3D_CUBEMAP) != 0) {
    good = a.Width == a.Height && a.Depth != 0 && (layered ? a.Depth % 6 == 0 : a.Depth == 6) &&
           within(a, max_cube, max_cube, layered ? max_layers : 6);
  } else if (layered) {
    good = a.Depth != 0 && within(a, 32768, 32768, max_layers);
  } else if (a.Depth != 0) {
    good = within(a, max_side_3d, max_side_3d, max_side_3d);
  } else if (a.Height != 0) {
    good = within(a, max_side_2d, max_height_2d, 0);
  } else {
    good = within(a, max_width_1d, 0, 0);
  }
  return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

unsigned array_element_bytes(CUarray_format format, unsigned channels) {
  unsigned bytes = 0;
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      bytes = 1;
      break;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      bytes = 2;
      break;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      bytes = 4;
      break;
    default:
      return 0;
  }
  return channels == 1 || channels == 2 || channels == 4 ? bytes * channels : 0;
}

CUresult check_array(const CUDA_ARRAY3D_DESCRIPTOR& wanted, ArrayShape* shape) {
  constexpr unsigned known =
      CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP |
      CUDA_ARRAY3D_TEXTURE_GATHER | CUDA_ARRAY3D_DEPTH_TEXTURE | CUDA_ARRAY3D_COLOR_ATTACHMENT |
      CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING | CUDA_ARRAY3D_VIDEO_ENCODE_DECODE;
  // Arrays without memory of their own, and those that only graphics and video make sense of.
  constexpr unsigned refused = CUDA_ARRAY3D_DEPTH_TEXTURE | CUDA_ARRAY3D_COLOR_ATTACHMENT |
                               CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING |
                               CUDA_ARRAY3D_VIDEO_ENCODE_DECODE;
  if ((wanted.Flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
  shape->element = array_element_bytes(wanted.Format, wanted.NumChannels);
  if (shape->element == 0) {
    // Plain formats with a wrong number of channels are wrong; the others are not carried.
    return array_element_bytes(wanted.Format, 1) != 0 ? CUDA_ERROR_INVALID_VALUE
                                                      : CUDA_ERROR_NOT_SUPPORTED;
  }
  if (CUresult bad = check_size(wanted)) return bad;
  if ((wanted.Flags & refused) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  shape->row = wanted.Width * shape->element;
  shape->height = wanted.Height != 0 ? wanted.Height : 1;
  shape->depth = wanted.Depth != 0 ? wanted.Depth : 1;
  return CUDA_SUCCESS;
}

}  // namespace headrace::driverabi
