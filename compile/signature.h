#pragma once
// What selects a program among those of a function.
#include <memory>
#include <string>
#include <vector>

#include "compile.h"
#include "record/outside.h"

namespace tapir::inline v0::detail {

/// Types, shapes, strides and flags of the arguments, numbers among them, and modes. The same object twice among the arguments is another
/// signature than two.
void write_key(std::vector<int64_t>& key, const CompileCall& call);
/// The arguments that a key knows by their address, which is not another tensor's as long as somebody knows them.
std::shared_ptr<const std::vector<ir::WeakTensor>> leaves_of(const std::vector<Tensor>& arguments);
/// "float32 (32, 784), int64 (32,); no gradients".
std::string text_of_key(const std::vector<int64_t>& key);
/// What to do where calls of one function have both: the first difference tells.
const char* advice(const std::vector<int64_t>& key, const std::vector<int64_t>& other);

}  // namespace tapir::inline v0::detail
