// Without oneDNN: everything falls to the kernels of ../matmul.cpp and ../conv_*.cpp.
#include "../dnn.h"

namespace tapir::inline v0::cpu::dnn {

std::string library() { return "no library"; }
bool gemm(Context&, const Gemm&) { return false; }
bool has_bfloat16() { return false; }
bool has_amx() { return false; }
bool conv(Context&, const Conv&) { return false; }
bool quant_conv(Context&, const QuantConv&) { return false; }

}  // namespace tapir::inline v0::cpu::dnn
