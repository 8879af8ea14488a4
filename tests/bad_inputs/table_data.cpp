// Loaders, samplers, data sets, transforms, texts.
#include <functional>
#include <memory>

#include "table.h"

using namespace bad_inputs;
namespace tf = data::transforms;

namespace {
struct Numbers {
  int64_t n = 4;
  int64_t size() const { return n; }
  Tensor get(int64_t i) const { return full({}, i); }
};
/// A data set of a function's samples.
struct Samples {
  std::function<Tensor(int64_t)> f;
  int64_t size() const { return 4; }
  Tensor get(int64_t i) const { return f(i); }
};
struct Order : data::Sampler {
  std::vector<int64_t> list;
  int64_t count;
  explicit Order(std::vector<int64_t> list, int64_t count = 4) : list(std::move(list)), count(count) {}
  int64_t size() const override { return count; }
  std::vector<int64_t> indices(int64_t) const override { return list; }
};
template <class L> int64_t batches(L& loader) {
  int64_t n = 0;
  for (auto& b : loader) n += b.defined();
  return n;
}
using Loader = data::DataLoader<Numbers>;
Loader numbers(const data::LoaderOptions& options = {}) { return Loader(Numbers(), options); }
Loader resumed(const char* name, const Tensor& value) {
  Loader loader(Numbers{});
  StateDict state = loader.state_dict();
  state.set(name, value);
  loader.load_state_dict(state);
  return loader;
}
Tensor image(int64_t size = 8) { return full({3, size, size}, 100, {.dtype = kUInt8}); }
std::string tokens() {
  data::write_tokens(temporary("tokens"), arange(20));
  return temporary("tokens");
}
}  // namespace

V(830, ("DataLoader", "moved from"), Loader l = numbers(); Loader taken = std::move(l); batches(l))
V(831, ("DataLoader", "moved from"), Loader l = numbers(); Loader taken = std::move(l); l.state_dict())
V(832, ("DataLoader", "moved from"), Loader l = numbers(); Loader taken = std::move(l); l.set_epoch(3))
V(833, ("Shared", "moved from"), Loader l = numbers(); Loader taken = std::move(l); l.size())
V(834, ("Shared", "moved from"), Loader l = numbers(); Loader taken = std::move(l); l.stats())
V(835, ("DataLoader", "iterator", "moved from"), Loader l = numbers(); auto it = l.begin(); auto taken = std::move(it);
  ++it)
V(836, ("DataLoader", "end of the loop"), Loader l = numbers(); auto it = l.begin(); auto taken = std::move(it);
  (*it).numel())
V(837, ("DataLoader", "end of the loop"), Loader l(Numbers{1}); auto it = l.begin(); ++it; (*it).numel())
FINE(838, Loader l(Numbers{1}); auto it = l.begin(); ++it, ++it, ++it; expect(it == l.end()))
FINE(839, Loader l = numbers({.num_workers = 2}); auto it = l.begin(); Loader taken = std::move(l); ++it;
     expect((*it).item() == 1 && batches(taken) == 4, "a loop that goes on, and another one"))
FINE(840, auto l = std::make_unique<Loader>(Numbers(), data::LoaderOptions{.num_workers = 2}); int n = 0;
     for (auto it = l->begin(); !(it == data::LoaderEnd()); ++it) l.reset(), ++n;
     expect(n == 4, "a loop without its loader"))
V(841, ("DataLoader", "empty Shared"), Loader(data::Shared<Numbers>()))
V(842, ("subset", "empty Shared"), data::Subset<Numbers>(data::Shared<Numbers>(), {0}))
V(843, ("DataLoader", "an epoch", "9223372036854775807"), Loader l = numbers(); l.set_epoch(kMost))
V(844, ("DataLoader", "epoch", "9223372036854775807"), resumed("epoch", full({}, kMost)))
V(845, ("DataLoader", "samples", "float32 ()"), resumed("samples", full({}, kNan)))
V(846, ("DataLoader", "samples", "undefined"), resumed("samples", Tensor()))
V(847, ("DataLoader", "seed", "int64 (2,)"), resumed("seed", full({2}, 1)))
V(848, ("DataLoader", "at most 4", "1000"), Loader l = resumed("samples", full({}, 1000)); batches(l))
R(849, ("DataLoader", "sampler", "-1"), numbers({.sampler = Order({0, 1}, -1)}).size())
V(850, ("DataLoader", "[0, 4)", "99 at position 1"), Loader l = numbers({.sampler = Order({0, 99})}); batches(l))
R(851, ("DataLoader", "dataset size", "-5"), Loader l(Numbers{-5}); batches(l))
O(852, ("SequentialSampler", "9223372036854775807"), Loader l(Numbers{kMost}); batches(l))
V(853, ("PadCollate", "300", "uint8"),
  data::DataLoader l(Samples{[](int64_t i) { return zeros({i}, {.dtype = kUInt8}); }}, {.batch_size = 4},
                     data::PadCollate{300});
  batches(l))
V(854, ("PadCollate", "nan", "int64"),
  data::DataLoader l(Samples{[](int64_t i) { return zeros({i}, {.dtype = kInt64}); }}, {.batch_size = 4},
                     data::PadCollate{kNan});
  batches(l))
V(855, ("PadCollate", "1e+300", "int64"),
  data::DataLoader l(Samples{[](int64_t i) { return zeros({i}, {.dtype = kInt64}); }}, {.batch_size = 4},
                     data::PadCollate{1e300});
  batches(l))
R(856, ("DataLoader", "sample 3", "worker", "not a std::exception"),
  data::DataLoader l(Samples{[](int64_t i) -> Tensor {
                       if (i == 3) throw 5;
                       return ones({});
                     }},
                     {.num_workers = 2});
  batches(l))
O(857, ("DataLoader", "sample 3", "no room"), data::DataLoader l(Samples{[](int64_t i) -> Tensor {
    if (i == 3) throw OutOfMemoryError("no room");
    return ones({});
  }});
  batches(l))
R(858, ("DataLoader", "samples 0", "not a std::exception"),
  data::DataLoader l(Numbers(), {.num_workers = 2}, [](std::vector<Tensor>) -> Tensor { throw 5; });
  batches(l))
FINE(
    859, int n = 0; for (int round = 0; round < 2; ++round) {
      data::DataLoader l(Samples{[](int64_t i) -> Tensor {
                           if (i == 2) throw "text";
                           return ones({});
                         }},
                         {.num_workers = 2, .persistent_workers = true});
      for (int epoch = 0; epoch < 2; ++epoch) try {
          batches(l);
        } catch (const RuntimeError&) {
          ++n;
        }
    } expect(n == 4, "an error of each epoch"))
R(860, ("concat", "9223372036854775807"), data::concat(Numbers{kMost}, Numbers{kMost}).size())
R(861, ("concat", "-3"), data::concat(Numbers{-3}, Numbers{5}).get(0))
V(862, ("random_split", "dataset size", "-10"), data::split_indices(-10, {Scalar(1.0)}, 0))
V(863, ("random_split", "add up to 10", "18446744073709551616"),
  data::split_indices(10, {Scalar(kMost), Scalar(kMost), Scalar(12)}, 0))
V(864, ("gather_rows", "undefined"), data::gather_rows(Tensor(), std::vector<int64_t>{0}))
V(865, ("gather_rows", "float32 ()"), data::gather_rows(ones({}), std::vector<int64_t>{0}))

V(870, ("adjust_brightness", "1000000", "1e+300"), tf::adjust_brightness(image(), 1e300))
V(871, ("adjust_sharpness", "1000000", "1e+300"), tf::adjust_sharpness(image(), 1e300))
FINE(872, expect(tf::adjust_brightness(image(1), 1e6).sum().item() == 3 * 255, "white"))
V(873, ("center_crop", "1048576", "2147483648"), tf::center_crop(image(), int64_t(1) << 31, 4))
V(874, ("center_crop", "-1"), tf::center_crop(image(), -1, 5))
V(875, ("pad", "[0, 1048576)", "1099511627776"), tf::pad(image(), int64_t(1) << 40))
V(876, ("Resize", "width", "-1"), tf::Resize{3, -1}(image()))
V(877, ("RandomCrop", "size above 0", "0"), tf::RandomCrop{0}(image()))
V(878, ("RandomCrop", "padding", "-1"), tf::RandomCrop{4, -1}(image()))
V(879, ("RandomResizedCrop", "size above 0", "-4"), tf::RandomResizedCrop{-4}(image()))
V(880, ("RandomResizedCrop", "scale", "nan"), tf::RandomResizedCrop{4, {kNan, 1}}(image()))
V(881, ("RandomResizedCrop", "scale", "1 to 0.5"), tf::RandomResizedCrop{4, {1, 0.5}}(image()))
V(882, ("RandomResizedCrop", "scale", "inf"), tf::RandomResizedCrop{4, {0.1, kInf}}(image()))
V(883, ("RandomResizedCrop", "ratio", "0 to 1"), tf::RandomResizedCrop{4, {0.1, 1}, {0, 1}}(image()))
V(884, ("RandomResizedCrop", "ratio", "-1"), tf::RandomResizedCrop{4, {0.1, 1}, {-1, 1}}(image()))
V(885, ("RandomResizedCrop", "height and width", "-1 and 5"), tf::RandomResizedCrop{4}.draw(-1, 5))
V(886, ("RandomResizedCrop", "height and width", "9223372036854775807"), tf::RandomResizedCrop{4}.draw(kMost, kMost))
V(887, ("RandomHorizontalFlip", "nan"), tf::RandomHorizontalFlip{kNan}(image()))
V(888, ("RandomVerticalFlip", "-1"), tf::RandomVerticalFlip{-1}(image()))
V(889, ("ColorJitter", "inf"), tf::ColorJitter{0, kInf}(image()))
V(890, ("RandAugment", "1000", "1099511627776"), tf::RandAugment{int64_t(1) << 40}(image()))
V(891, ("RandomErasing", "p in [0, 1]", "1.5"), tf::RandomErasing{1.5}(image()))
V(892, ("RandomErasing", "scale", "nan"), tf::RandomErasing{1, {kNan, 1}}(image()))
V(893, ("RandomErasing", "ratio", "-1 to 2"), tf::RandomErasing{1, {0.1, 0.2}, {-1, 2}}(image()))
V(894, ("RandomErasing", "300", "uint8"), tf::RandomErasing{0.5, {0.1, 0.2}, {1, 2}, 300}(image()))
V(895, ("Normalize", "channel 0", "std above 0", "0"), tf::Normalize{{0, 0, 0}, {0, 1, 1}}(image()))
V(896, ("Normalize", "channel 1", "nan"), tf::Normalize{{0, kNan, 0}, {1, 1, 1}}(image()))
FINE(897, expect(tf::Cutout{kMost}(image()).sum().item() == 0 && tf::Cutout{3}(image(0)).numel() == 0))

V(900, ("CharVocabulary", "integer dtype", "float32 (1,)"), data::CharVocabulary("ab").decode(tensor({0.5})))
V(901, ("CharVocabulary", "undefined"), data::CharVocabulary("ab").decode(Tensor()))
R(902, ("CharVocabulary", "UTF-8", "byte 2"), data::CharVocabulary("ab\xe2\x82"))
R(903, ("CharVocabulary", "UTF-8", "byte 0"), data::CharVocabulary("\xed\xa0\x80"))
V(904, ("CharDataset", "context above 0", "-1"), data::CharDataset(tensor({1, 2, 3}), -1))
V(905, ("write_tokens", "integer dtype", "float32 (1,)"), data::write_tokens(temporary("t"), tensor({1.5})))
V(906, ("write_tokens", "undefined"), data::write_tokens(temporary("t"), Tensor()))
V(907, ("TokenFile", "moved from"), data::TokenFile f(tokens(), 3); data::TokenFile taken = std::move(f); f.get(0))
V(908, ("TokenFile", "moved from"), data::TokenFile f(tokens(), 3, {.map = true}); data::TokenFile taken = std::move(f);
  f.get(0))
R(909, ("TokenFile", "shrunk"), data::TokenFile f(tokens(), 3, {.map = true});
  std::filesystem::resize_file(temporary("tokens"), 0); f.get(9))
FINE(910, data::TokenFile f(tokens(), 3); std::filesystem::remove(temporary("tokens"));
     expect(values(f.get(5)[0]) == Values{5, 6, 7}))
FINE(911, data::TokenFile f(tokens(), 3, {.stride = kMost});
     expect(f.size() == 1 && values(f.get(0)[1]) == Values{1, 2, 3}))

V(
    1130, ("DataLoader", "shards above 0", "0"),
    struct Nothing {
      struct Stream {
        std::optional<Tensor> next() { return {}; }
      };
      int64_t shards() const { return 0; }
      Stream stream(int64_t, int64_t) const { return {}; }
    };
    data::DataLoader l(Nothing{}); batches(l))
V(1131, ("mixup", "classes above 0", "-1"), tf::mixup(ones({2, 3}), tensor({0, 1}), -1))
V(1132, ("mixup", "class 7"), tf::mixup(ones({2, 3}), tensor({0, 7}), 3))
V(1133, ("cutmix", "classes above 0", "0"), tf::cutmix(ones({2, 3, 4, 4}), tensor({0, 1}), 0))
V(1134, ("cutmix", "(2, 3)"), tf::cutmix(ones({2, 3}), tensor({0, 1}), 3))
V(1135, ("RandomHorizontalFlip", "an image", "float32 (4,)"), tf::RandomHorizontalFlip{.5}(ones({4})))
V(1136, ("ColorJitter", "an image", "float32 (3, 4, 4)"), tf::ColorJitter{.1, .1}(ones({3, 4, 4})))
V(1137, ("RandAugment", "an image", "undefined"), tf::RandAugment{}(Tensor()))
