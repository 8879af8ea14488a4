// A toy translation: dates as people write them ("march 3rd, 1998", "03.03.98") into ISO form ("1998-03-03"), by recurrent networks
// with attention over the characters.
#include <tapir/models/seq2seq.h>

#include "run.h"
using namespace tapir;

static const std::string kLetters = " ,./-0123456789abcdefghijklmnopqrstuvwxyz", kDigits = "0123456789-";
constexpr int64_t kSource = 28, kTarget = 10;            // longest texts
constexpr int64_t kDates = 200 * 12 * 28, kTest = 2000;  // 1900 to 2099, days up to the 28th
constexpr int64_t kPad = 0, kBegin = 1, kEnd = 2, kFirst = 3;

struct Date {
  int year, month, day;
};
static std::string two(int n) { return (n < 10 ? "0" : "") + std::to_string(n); }
static std::string iso(const Date& d) { return std::to_string(d.year) + "-" + two(d.month) + "-" + two(d.day); }
/// In one of eight ways.
static std::string written(const Date& d, int64_t way) {
  static const char* const months[] = {"january", "february", "march",     "april",   "may",      "june",
                                       "july",    "august",   "september", "october", "november", "december"};
  static const char* const weekdays[] = {"sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"};
  const std::string month = months[d.month - 1], day = std::to_string(d.day), year = std::to_string(d.year);
  const std::string nth = day + (d.day % 10 == 1 && d.day != 11   ? "st"
                                 : d.day % 10 == 2 && d.day != 12 ? "nd"
                                 : d.day % 10 == 3 && d.day != 13 ? "rd"
                                                                  : "th");
  const int y = d.month < 3 ? d.year - 1 : d.year, shift[] = {0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4};
  const std::string weekday =
      weekdays[(y + y / 4 - y / 100 + y / 400 + shift[d.month - 1] + d.day) % 7];  // Sakamoto's rule
  switch (way) {
    case 0: return day + " " + month + " " + year;
    case 1: return month + " " + nth + ", " + year;
    case 2: return two(d.day) + "." + two(d.month) + "." + year;
    case 3: return std::to_string(d.month) + "/" + day + "/" + year;
    case 4: return month.substr(0, 3) + " " + day + " " + year;
    case 5: return nth + " of " + month + " " + year;
    case 6: return weekday + ", " + day + " " + month.substr(0, 3) + " " + year;
    default: return year + " " + month.substr(0, 3) + " " + two(d.day);
  }
}
/// ValueError for an empty text, one that is longer, and letters that the alphabet lacks.
static std::vector<int64_t> tokens(const std::string& text, const std::string& alphabet, int64_t length) {
  check(!text.empty() && int64_t(text.size()) <= length, "expected 1 to {} letters, got {} in \"{}\"", length,
        int64_t(text.size()), text);
  std::vector<int64_t> out(size_t(length), kPad);
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t at = alphabet.find(text[i]);
    check(at != alphabet.npos, "expected letters out of \"{}\", got \"{}\"", alphabet, text);
    out[i] = kFirst + int64_t(at);
  }
  return out;
}

/// Date i of many, in a random way: source (S), target behind a "begin" (T + 1), the same one place on with an "end" (T + 1).
struct Dates {
  int64_t count, first;
  int64_t size() const { return count; }
  std::array<Tensor, 3> get(int64_t i) const {
    const int64_t n = (first + i) * 7919 % kDates;  // spread over all of them, each once
    const Date date{1900 + int(n / (12 * 28)), 1 + int(n / 28 % 12), 1 + int(n % 28)};
    std::vector<int64_t> target = tokens(iso(date), kDigits, kTarget), in = {kBegin}, out = target;
    in.insert(in.end(), target.begin(), target.end());
    out.push_back(kEnd);
    return {tensor(tokens(written(date, (first + i) % 8), kLetters, kSource)), tensor(in), tensor(out)};
  }
};

/// Percent of dates that are exactly right.
template <class Loader> static double exact(models::Seq2Seq& net, Loader& test) {
  NoGrad guard;
  net.eval();
  int64_t right = 0;
  for (auto& [source, in, out] : test) {
    const Tensor answer = net.translate(source, kBegin, kEnd, kTarget + 1);
    if (answer.size(1) == kTarget + 1) right += sum(all(eq(answer, out), 1)).template item<int64_t>();
  }
  net.train();
  return 100 * double(right) / double(test.dataset().size());
}

/// What is written in the tokens of `source` (S).
static std::string read_date(models::Seq2Seq& net, const Tensor& source) {
  NoGrad guard;
  net.eval();
  std::string answer;
  const Tensor out = net.translate(source.unsqueeze(0), kBegin, kEnd, kTarget + 1);
  for (const int64_t token : out.cpu().view({-1}).to_vector<int64_t>())
    if (token >= kFirst) answer += kDigits[size_t(token - kFirst)];
  return answer;
}

int main(int argc, char** argv) {
  samples::Options o{.epochs = 3, .batch_size = 128, .lr = 2e-3};
  int64_t dim = 128, examples = 20000;
  std::string phrase = "tuesday, 14 jul 1970";
  samples::App app("Learns to read dates", "seq2seq");
  app.add_option("--dim", dim, "Channels")->check(samples::whole(1));
  app.add_option("--examples", examples, "Dates to learn from")->check(samples::whole(1, kDates - kTest));
  app.add_option("--phrase", phrase, "A date to read at the end, in small letters");
  return samples::main(app, argc, argv, o, [&] {
    const Device device(o.device);
    const Tensor asked = samples::from_option("--phrase", [&] { return tensor(tokens(phrase, kLetters, kSource)); });
    models::Seq2Seq net(kFirst + int64_t(kLetters.size()), kFirst + int64_t(kDigits.size()), dim);
    net.to(device);
    data::DataLoader train(
        Dates{examples, 0},
        {.batch_size = o.batch_size, .shuffle = true, .num_workers = 1, .seed = o.seed, .device = device});
    data::DataLoader test(Dates{kTest, examples}, {.batch_size = 500, .device = device});  // others than those
    optim::AdamW opt(net.parameters(), {.lr = o.lr});
    optim::OneCycleLR schedule(opt, o.lr,
                               {.total_steps = o.epochs * train.size(), .pct_start = 0.1, .cycle_momentum = false});
    amp::GradScaler scaler({.enabled = o.amp == "fp16"});

    auto step = compile(
        [&](const Tensor& source, const Tensor& in, const Tensor& out) {
          opt.zero_grad();
          Tensor loss;
          {
            amp::Autocast autocast(device, o.precision());
            loss = cross_entropy(flatten(net(source, in), 0, 1), flatten(out));
          }
          samples::clipped_update(loss, net, opt, scaler);
          return loss;
        },
        {.enabled = o.compile});

    samples::Run run(o, {"exact %"}, {.higher_is_better = true});
    run.keep("model", net).keep("optimizer", opt).keep("schedule", schedule).keep("scaler", scaler);
    run.keep("loader", train).explain(step);
    while (run.next_epoch(train.size())) {
      for (auto& [source, in, out] : train) {
        const Tensor loss = step(source, in, out);
        schedule.step();
        if (!run.step(loss)) break;
      }
      if (run.interrupted()) return run.finish();
      run.end_epoch({exact(net, test)});
    }
    std::printf("%.2f %% of %lld new dates exactly right; \"%s\" is %s\n", run.last(0), static_cast<long long>(kTest),
                phrase.c_str(), read_date(net, asked.to(device)).c_str());
    return run.finish();
  });
}
