#include <tapir/io/csv.h>

#include <clocale>
#include <cmath>

#include "../catch.h"
#include "temporary.h"

using namespace tapir;
using namespace tapir_tests;
using io::CsvOptions;

namespace {

io::CsvTable read(const std::string& text, const CsvOptions& options = {}) {
  const TemporaryFolder folder;
  spit(folder / "t.csv", text);
  return io::read_csv(folder / "t.csv", options);
}
std::vector<double> values(const std::string& text, const CsvOptions& options = {}) {
  return read(text, options).values.to_vector<double>();
}
std::string refusal(const std::string& text, const CsvOptions& options = {}) {
  const std::string message = message_of<RuntimeError>([&] { read(text, options); });
  CHECK(mentions(message, {"[read_csv]", "t.csv", "expected"}));
  return message;
}
using Values = std::vector<double>;
const CsvOptions kPlain{.dtype = kFloat64, .header = false};

}  // namespace

TEST_CASE("CSV: columns, names, dtypes") {
  const io::CsvTable t = read("x,y,label\n1,2.5,0\n-3,4e2,1\n", {.columns = {"label", "x"}});
  CHECK(t.columns == std::vector<std::string>{"label", "x"});
  CHECK(t.values.shape() == Shape{2, 2});
  CHECK(t.values.to_vector<double>() == Values{0, 1, 1, -3});
  CHECK(t["x"].to_vector<double>() == Values{1, -3});
  CHECK_THROWS_AS(t["y"], ValueError);
  for (const DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16, kInt64, kInt32, kInt16, kInt8, kUInt8, kBool}) {
    const Tensor x = read("1,0\n0,1\n", {.dtype = dtype, .header = false}).values;
    CHECK(x.dtype() == dtype);
    CHECK(x.to_vector<double>() == Values{1, 0, 0, 1});
  }
  CHECK(read("9223372036854775807\n", {.dtype = kInt64, .header = false}).values.item<int64_t>() == INT64_MAX);
  CHECK(read("3,4\n1,2\n", {.header = false}).columns == std::vector<std::string>{"0", "1"});
}

TEST_CASE("BI-260 CSV: empty, a header alone, ragged lines, open quotes, NUL bytes, endless lines") {
  CHECK(mentions(refusal(""), {"none"}));
  CHECK(mentions(refusal("\n\r\n\n"), {"none"}));
  CHECK(mentions(refusal("x,y\n"), {"header"}));
  CHECK(mentions(refusal("x,y\n1,2\n3\n"), {"line 3", "2 fields", "got 1"}));
  CHECK(mentions(refusal("x,y\n1,2\n\n3,4,5\n"), {"line 4", "2 fields", "got 3"}));
  CHECK(mentions(refusal("x,y\n1,2,,\n"), {"line 2", "got 4"}));
  CHECK(mentions(refusal("x,y\n1,\"2\n3,4\n"), {"line 4", "column 2", "since line 2", "quote"}));
  CHECK(mentions(refusal("x,y\n1,\"2\"3\n"), {"line 2", "column 2", "quote"}));
  CHECK(mentions(refusal(std::string("x\n1\0\n", 5)), {"line 2", "column 1", "NUL"}));
  for (const std::string& line : {std::string(5000, '1'), std::string(5000, ','), "\"" + std::string(5000, '\n')})
    CHECK(mentions(refusal(line, {.header = false, .max_line = 1000}), {"1000 bytes"}));
  CHECK_THROWS_AS(io::read_csv("/nonexistent/t.csv"), RuntimeError);
}

TEST_CASE("BI-261 CSV: byte order mark, CRLF, CR, quotes, delimiters too many") {
  CHECK(read("\xEF\xBB\xBFx,y\r\n1,2\r\n").columns == std::vector<std::string>{"x", "y"});
  CHECK(mentions(refusal("\xEF\xBBx,y\n"), {"UTF-8"}));
  for (const char* text :
       {"1,2\n3,4\n", "1,2\n3,4", "1,2\r\n3,4\r\n", "1,2\r3,4\r", "1,2\n\n\n3,4\n\n", "\n1,2\r\r\n3,4", "1,2,\n3,4,\n",
        "1,2\n3,4,\n", "\"1\",\"2\"\n\"3\",4\n", " 1 ,\t2\n+3,4 \n"})
    CHECK(values(text, kPlain) == Values{1, 2, 3, 4});
  const io::CsvTable t = read("\"a,b\",\"say \"\"x\"\"\",\"two\nlines\"\n1,2,3\n");
  CHECK(t.columns == std::vector<std::string>{"a,b", "say \"x\"", "two\nlines"});
  CHECK(values("1;2\t\n3;4\n", {.header = false, .delimiter = ';'}) == Values{1, 2, 3, 4});
  CHECK(values("1\t2\n3\t4\n", {.header = false, .delimiter = '\t'}) == Values{1, 2, 3, 4});
  CHECK(values("x,y,\n1,2,\n", {.missing = 0}) == Values{1, 2});
  for (const char c : {'"', '\n', '\r', '.', '-', '1', 'e', '\0'})
    CHECK_THROWS_AS(read("1\n", {.delimiter = c}), ValueError);
}

TEST_CASE("BI-262 CSV: what is no number") {
  for (const char* text : {"abc", "0x10", "1e400", "-1e400", "inf", "-inf", "nan", "NA", "1 2", "1e", "--1", "+-1",
                           "1.2.3", ".", "1e99999999999999999999", "\"1,5\"", "1_000"}) {
    INFO(text);
    const std::string message = refusal("x,y\n7," + std::string(text) + "\n", {.dtype = kFloat64});
    CHECK(mentions(message, {"line 2", "column 2", "\"y\"", "float64"}));
  }
  CHECK(mentions(refusal("7,,8\n", kPlain), {"line 1", "column 2", "got \"\""}));
  CHECK(mentions(refusal("1e39\n", {.header = false}), {"float32"}));
  CHECK(mentions(refusal("70000\n", {.dtype = kFloat16, .header = false}), {"float16"}));
  CHECK(values("1e-400\n-1e-400\n1e-99999999999999999999\n"
               "0." +
                   std::string(400, '0') + "1\n",
               kPlain) == Values{0, 0, 0, 0});
  CHECK(values("1e-46\n", {.header = false}) == Values{0});
  for (const char* text : {"1.5", "128", "-129", "1e1", "true"})
    CHECK(mentions(refusal(text, {.dtype = kInt8, .header = false}), {"int8"}));
  CHECK(mentions(refusal("2\n", {.dtype = kBool, .header = false}), {"bool"}));
  CHECK(values("a,b\n,2\n3,NaN\nna,\n", {.missing = -1}) == Values{-1, 2, 3, -1, -1, -1});
  CHECK(std::isnan(values("x\n1\n\" \"\n", {.missing = NAN}).at(1)));
  CHECK_THROWS_AS(read("1\n", {.dtype = kInt64, .missing = NAN}), ValueError);
  const std::string before = std::setlocale(LC_ALL, nullptr);
  if (std::setlocale(LC_ALL, "de_DE.UTF-8")) CHECK(values("1.5\n", kPlain) == Values{1.5});
  std::setlocale(LC_ALL, before.c_str());
}

TEST_CASE("BI-263 CSV: columns that are not there, or twice; a million of them") {
  CHECK(mentions(refusal("x,y\n1,2\n", {.columns = {"z"}}), {"\"z\"", "\"x\", \"y\""}));
  CHECK(mentions(refusal("x,y,x\n1,2,3\n", {.columns = {"x"}}), {"one column \"x\"", "several"}));
  CHECK(mentions(refusal("1,2\n", {.columns = {"2"}, .header = false}), {"\"0\", \"1\""}));
  std::string names, numbers;
  for (int i = 0; i < 1000000; ++i) names += "c" + std::to_string(i) + ",", numbers += std::to_string(i % 10) + ",";
  const io::CsvTable t = read(names + "\n" + numbers + "\n", {.columns = {"c999999", "c3"}});
  CHECK(t.values.to_vector<double>() == Values{9, 3});
  const std::string message = refusal(names + "\n" + numbers, {.columns = {"z"}});
  CHECK(mentions(message, {"1000000 columns"}));
  CHECK(message.size() < 400);
}
