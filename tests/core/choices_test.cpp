// core/choices.cpp: choices kept on disk.
#include <tapir/core/choices.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <vector>

#include "../catch.h"
#include "../io/temporary.h"
#include "../variable.h"

using namespace tapir_tests;
using tapir::choice_key, tapir::Choices, tapir::path_of_choices;

TEST_CASE("choices: they outlive the program") {
  const TemporaryFolder folder;
  const std::string path = folder / "a/b/choices";  // the folders are made
  const std::string key = choice_key("NVIDIA H200", "cudnn", 91900, "conv 1 2 3"),
                    other = choice_key("NVIDIA H200", "cudnn", 91901, "conv 1 2 3");
  CHECK(key == "NVIDIA H200|cudnn 91900|conv 1 2 3");
  {
    Choices first(path);
    CHECK(first.find(key) == "");
    first.keep(key, "eng1 k2=3"), first.keep(other, "eng7");
    CHECK(first.find(key) == "eng1 k2=3");
    first.keep(key, "eng4");  // the last counts
    first.keep(key, "eng4");
  }
  Choices second(path);
  CHECK(second.find(key) == "eng4");
  CHECK(second.find(other) == "eng7");
  CHECK(second.find("no such key") == "");
  const std::string text = slurp(path);
  CHECK(std::count(text.begin(), text.end(), '\n') == 4);  // what is there already is not written again
}

TEST_CASE("choices: damage costs only the lines it hits") {
  const TemporaryFolder folder;
  const std::string path = folder / "choices";
  Choices(path).keep("one", "1"), Choices(path).keep("two", "2"), Choices(path).keep("three", "3");
  const std::string whole = slurp(path);
  std::string edited = whole;
  edited[edited.find("two")] = 'T';
  spit(path, edited);
  CHECK(Choices(path).find("one") == "1");
  CHECK(Choices(path).find("Two") == "");
  CHECK(Choices(path).find("three") == "3");
  for (size_t n = 0; n < whole.size(); ++n) {  // cut anywhere
    spit(path, whole.substr(0, n));
    for (const char* const key : {"one", "two", "three"}) {
      const std::string found = Choices(path).find(key);
      CHECK((found.empty() || found == (key[0] == 'o' ? "1" : key[1] == 'w' ? "2" : "3")));
    }
  }
  spit(path, whole + std::string("\0\xff\t\t\t\n\n\t\n", 8) + "no tabs at all");
  CHECK(Choices(path).find("three") == "3");
}

TEST_CASE("choices: what is not ours is left alone") {
  const TemporaryFolder folder;
  const std::string path = folder / "choices";
  for (const std::string& text :
       {std::string("someone's notes\n"), std::string("tapir choices 2\nx"), std::string(1, '\0')}) {
    spit(path, text);
    Choices store(path);
    CHECK(store.find("key") == "");
    store.keep("key", "value");
    CHECK(store.find("key") == "value");  // for this program
    CHECK(slurp(path) == text);
  }
  Choices on_folder(folder.path), on_device("/dev/null"), nowhere("/proc/no/such/place"), memory("");
  for (Choices* store : {&on_folder, &on_device, &nowhere, &memory}) {
    CHECK(store->find("key") == "");
    store->keep("key", "value");
    CHECK(store->find("key") == "value");
  }
}

TEST_CASE("choices: entries that a line cannot hold are not kept") {
  const TemporaryFolder folder;
  const std::string path = folder / "choices";
  Choices store(path);
  for (const char* const bad : {"a\tb", "a\nb", "a\rb"}) {
    store.keep(bad, "value"), store.keep("key", bad);
    CHECK(store.find(bad) == "");
  }
  store.keep(std::string(2000, 'k'), "value"), store.keep("zero", std::string(1, '\0'));
  CHECK(store.find("zero") == "");
  CHECK(store.find("key") == "");
  CHECK(slurp(path).empty());
}

TEST_CASE("choices: threads and several stores share a file") {
  const TemporaryFolder folder;
  const std::string path = folder / "choices";
  {
    Choices a(path), b(path);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < 25; ++i)
          (t % 2 ? a : b).keep("key " + std::to_string(t) + " " + std::to_string(i), std::to_string(i));
      });
    for (std::thread& t : threads) t.join();
  }
  Choices store(path);
  int found = 0;
  for (int t = 0; t < 4; ++t)
    for (int i = 0; i < 25; ++i)
      found += store.find("key " + std::to_string(t) + " " + std::to_string(i)) == std::to_string(i);
  CHECK(found == 100);
}

TEST_CASE("choices: the place follows the environment") {
  const Variable own("TAPIR_CACHE", "/own"), base("XDG_CACHE_HOME", "/base"), home("HOME", "/home/me");
  CHECK(path_of_choices() == "/own/choices");
  const Variable no_own("TAPIR_CACHE", nullptr);
  CHECK(path_of_choices() == "/base/tapir/choices");
  const Variable relative("XDG_CACHE_HOME", "base");
  CHECK(path_of_choices() == "/home/me/.cache/tapir/choices");
  const Variable no_home("HOME", nullptr);
  CHECK(path_of_choices() == "");
}
