#pragma once
#include <array>
#include <string>
#include <string_view>

#include "dataset.h"
#include "mnist.h"

namespace tapir::inline v0::data {

inline constexpr std::array<std::string_view, 10> kCifar10Classes = {
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};

/// CIFAR-10: images uint8 (N, 3, 32, 32), labels int64 (N,). `path` is a folder with the binary version
/// (data_batch_1.bin to 5, test_batch.bin, perhaps in cifar-10-batches-bin/), a folder of JPEG or PNG files
/// (train/cat/0001.jpg), or a .tar or .tar.gz of either. RuntimeError for files that are missing, damaged or of another size.
TensorDataset<2> cifar10(const std::string& path, Split split);

/// CIFAR-10 from `path` if given, else $TAPIR_DATA, datasets/cifar10 or ../shared/data, where it is there under a usual
/// name. RuntimeError with the places where there is none.
std::string find_cifar10(const std::string& path = {});

}  // namespace tapir::inline v0::data
