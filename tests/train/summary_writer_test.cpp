#include <tapir/io/file.h>
#include <tapir/io/png.h>
#include <tapir/tapir.h>
#include <tapir/train/plot.h>
#include <tapir/train/summary_writer.h>

#include <sys/resource.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <iterator>

#include "../catch.h"
#include "../errors.h"
#include "../io/temporary.h"

using namespace tapir;
using tapir_tests::message_of;
using tapir_tests::TemporaryFolder;

/// A field of a protocol buffer: its number, and its bytes or number.
struct Field {
  int number;
  uint64_t value;
  std::string bytes;
};
static std::vector<Field> parse(std::string_view s) {
  std::vector<Field> out;
  size_t at = 0;
  const auto varint = [&] {
    uint64_t v = 0;
    for (int shift = 0;; shift += 7) {
      const uint8_t c = uint8_t(s.at(at++));
      v |= uint64_t(c & 127) << shift;
      if (c < 128) return v;
    }
  };
  while (at < s.size()) {
    const uint64_t key = varint();
    Field f{int(key >> 3), 0, ""};
    const int wire = int(key & 7), size = wire == 1 ? 8 : wire == 5 ? 4 : 0;
    if (wire == 0) f.value = varint();
    else {
      const size_t n = wire == 2 ? size_t(varint()) : size_t(size);
      f.bytes = s.substr(at, n), at += n;
    }
    out.push_back(f);
  }
  return out;
}
static const Field& field(const std::vector<Field>& fields, int number) {
  for (const Field& f : fields)
    if (f.number == number) return f;
  throw std::runtime_error("no field " + std::to_string(number));
}
template <class T> static T as(const std::string& bytes) {
  T v;
  std::memcpy(&v, bytes.data(), sizeof v);
  return v;
}

/// The events of a file; their checksums hold.
static std::vector<std::vector<Field>> events_of(const std::string& path) {
  const std::string all = io::read_file("test", path);
  std::vector<std::vector<Field>> out;
  for (size_t at = 0; at < all.size();) {
    const auto n = size_t(as<uint64_t>(all.substr(at, 8)));
    CHECK(as<uint32_t>(all.substr(at + 8, 4)) == train::detail::masked_crc32c(all.substr(at, 8)));
    const std::string event = all.substr(at + 12, n);
    CHECK(as<uint32_t>(all.substr(at + 12 + n, 4)) == train::detail::masked_crc32c(event));
    out.push_back(parse(event));
    at += n + 16;
  }
  return out;
}

TEST_CASE("SummaryWriter: what is written is read back") {
  const uint32_t crc = train::detail::masked_crc32c("123456789") - 0xa282ead8u;
  CHECK((crc << 15 | crc >> 17) == 0xE3069283u);
  const TemporaryFolder folder;
  train::SummaryWriter log(folder.path + "/runs/a");
  log.add_scalar("loss", 0.25, 7);
  log.add_histogram("w", tensor(std::vector<float>{0, 1, 1, 4, NAN}), 8, 4);
  log.add_image("digit", zeros({1, 2, 3}), 9);
  log.add_text("note", "hello", 10);
  log.add_hparams({{"lr", 0.1}, {"model", "cnn"}, {"amp", true}}, {{"accuracy", 0.5}});
  log.flush();
  const auto events = events_of(log.path());
  REQUIRE(events.size() == 9);
  CHECK(field(events[0], 3).bytes == "brain.Event:2");
  CHECK(field(events[1], 2).value == 7);
  const auto value = [&](size_t event) { return parse(field(parse(field(events[event], 5).bytes), 1).bytes); };
  CHECK(field(value(1), 1).bytes == "loss");
  CHECK(as<float>(field(value(1), 2).bytes) == 0.25f);
  const auto histogram = parse(field(value(2), 5).bytes);
  CHECK(as<double>(field(histogram, 2).bytes) == 4);
  CHECK(as<double>(field(histogram, 3).bytes) == 4);
  CHECK(as<double>(field(histogram, 5).bytes) == 18);
  const std::string counts = field(histogram, 7).bytes;
  REQUIRE(counts.size() == 32);
  CHECK(as<double>(counts) == 1);
  CHECK(as<double>(counts.substr(8)) == 2);
  CHECK(as<double>(counts.substr(24)) == 1);
  const auto image = parse(field(value(3), 4).bytes);
  CHECK(field(image, 1).value == 2);
  CHECK(field(image, 2).value == 3);
  CHECK(field(image, 4).bytes.substr(1, 3) == "PNG");
  CHECK(field(value(8), 1).bytes == "accuracy");
  CHECK(message_of<RuntimeError>([] { train::SummaryWriter("/proc/none/x"); }).find("/proc/none/x") !=
        std::string::npos);
}

TEST_CASE("SummaryWriter: a full disk costs records, not the file, and no descriptor") {
  const TemporaryFolder folder;
  train::SummaryWriter log(folder / "a");
  log.add_scalar("loss", 1, 1);
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  const auto files = open_files();
  rlimit before, full;
  getrlimit(RLIMIT_FSIZE, &before);
  full = before, full.rlim_cur = std::filesystem::file_size(log.path()) + 10;  // a part of the next record
  setrlimit(RLIMIT_FSIZE, &full);
  const std::string message = message_of<RuntimeError>([&] { log.add_scalar("loss", 2, 2); });
  full.rlim_cur = 10;
  setrlimit(RLIMIT_FSIZE, &full);
  const std::string at_once = message_of<RuntimeError>([&] { train::SummaryWriter(folder / "b"); });
  setrlimit(RLIMIT_FSIZE, &before);
  CHECK(message.find("File too large") != std::string::npos);
  CHECK(at_once.find("File too large") != std::string::npos);
  CHECK(open_files() == files);
  CHECK(std::filesystem::is_empty(folder / "b"));
  log.add_scalar("loss", 3, 3);
  const auto events = events_of(log.path());
  REQUIRE(events.size() == 3);  // the version, and steps 1 and 3
  CHECK(field(events[2], 2).value == 3);
}

TEST_CASE("encode_png: shapes and values (BI-259)") {
  CHECK(message_of<ValueError>([] {
          io::encode_png(zeros({2, 4, 4}));
        }).find("1, 3 or 4 channels") != std::string::npos);
  CHECK(message_of<ValueError>([] { io::encode_png(zeros({1, 0, 4})); }).find("pixels a side") != std::string::npos);
  CHECK(message_of<ValueError>([] {
          io::encode_png(zeros({1, 4, 4}, {.dtype = kInt64}));
        }).find("uint8, or floats") != std::string::npos);
  const Tensor wild = tensor(std::vector<float>{NAN, -3, 2, 0.5}).view({1, 2, 2});
  const Tensor tame = tensor(std::vector<float>{0, 0, 1, 0.5}).view({2, 2});
  CHECK(io::encode_png(wild) == io::encode_png(tame));
  CHECK(io::make_grid(ones({5, 3, 4, 6}), 3).shape() == Shape{3, 14, 26});
}

TEST_CASE("plot_svg: curves, gaps, nothing at all, and names with markup") {
  const std::string svg = train::plot_svg(
      {{"a < b", "epoch", "loss", {{"train & test", {1, 2, 3}, {0.5, NAN, 0.25}}, {"flat", {1, 2}, {2, 2}}}},
       {"empty", "x", "y", {}},
       {"log", "x", "y", {{"y", {1, 2, 3}, {1e-3, 0, 10}}}, true}});
  CHECK(svg.find("a &lt; b") != std::string::npos);
  CHECK(svg.find("train &amp; test") != std::string::npos);
  CHECK(svg.find("nan") == std::string::npos);
  CHECK(svg.find("inf") == std::string::npos);
  CHECK(message_of<ValueError>([] {
          train::plot_svg({{"", "", "", {{"c", {1}, {}}}}});
        }).find("as many x as y in \"c\"") != std::string::npos);
}

TEST_CASE("plots and histograms at the ends of double") {
  constexpr double most = std::numeric_limits<double>::max();
  const auto drawn = [](const std::vector<double>& x, const std::vector<double>& y, bool log = false) {
    return train::plot_svg({{"", "x", "y", {{"y", x, y}}, log}});
  };
  const std::string pictures[] = {drawn({1, 2, 3}, {-most, 0, most}),  drawn({-most, most}, {1, 2}),
                                  drawn({1, 2}, {most, most}),         drawn({1, 2}, {1e17, 1e17}),
                                  drawn({1, 2}, {5e-324, most}, true), drawn({1, 2}, {0, 5e-324})};
  for (const std::string& svg : pictures) {
    CHECK(svg.find("nan") == std::string::npos);
    CHECK(svg.find("inf") == std::string::npos);
    CHECK(std::count(svg.begin(), svg.end(), '\n') < 60);
    CHECK(svg.find("<path") != std::string::npos);
  }
  TemporaryFolder folder;
  train::SummaryWriter writer(folder.path);
  writer.add_histogram("x", tensor({-most, 0.0, most}), 0, 4);
}

TEST_CASE("SummaryWriter: texts in UTF-8 alone") {
  TemporaryFolder folder;
  train::SummaryWriter writer(folder / "log");
  const auto size = std::filesystem::file_size(writer.path());
  const auto says = [](const std::string& text) { return text.find("[SummaryWriter] expected") == 0; };
  CHECK(says(message_of<ValueError>([&] { writer.add_text("\xff", "text", 0); })));
  CHECK(says(message_of<ValueError>([&] { writer.add_hparams({{"a", "\xff"}}, {}); })));
  CHECK(says(message_of<ValueError>([&] { writer.add_hparams({{"\xff", 1}}, {}); })));
  CHECK(says(message_of<ValueError>([&] { writer.add_hparams({{"a", 1}}, {{"\xff", 1}}); })));
  CHECK(std::filesystem::file_size(writer.path()) == size);  // nothing of what was refused
}
