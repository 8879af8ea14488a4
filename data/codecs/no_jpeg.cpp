// Stands in for jpeg.cpp where there is no libjpeg.
#include "../../core/error.h"
#include "codec.h"

namespace tapir::inline v0::data::codecs {

void decode_jpeg(std::string_view, const std::string& where, const Limits&, Sink&) {
  fail(ErrorKind::Runtime, "{}: this Tapir was built without libjpeg (libjpeg62-turbo-dev)", where);
}
std::array<int64_t, 2> jpeg_size(std::string_view, const std::string& where) {
  fail(ErrorKind::Runtime, "{}: this Tapir was built without libjpeg (libjpeg62-turbo-dev)", where);
}
std::string encode_jpeg(const uint8_t*, int64_t, int64_t, int) {
  fail(ErrorKind::Runtime, "[encode_jpeg] this Tapir was built without libjpeg (libjpeg62-turbo-dev)");
}
bool has_jpeg() { return false; }

}  // namespace tapir::inline v0::data::codecs
