// Stands in for png.cpp where there is no libpng.
#include "../../core/error.h"
#include "codec.h"

namespace tapir::inline v0::data::codecs {

void decode_png(std::string_view, const std::string& where, const Limits&, Sink&) {
  fail(ErrorKind::Runtime, "{}: this Tapir was built without libpng (libpng-dev)", where);
}
bool has_png() { return false; }

}  // namespace tapir::inline v0::data::codecs
