#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

// Note [Choices kept on disk]
// What trials found to be the fastest way (an engine of cuDNN, an algorithm of cuBLASLt, Winograd's convolution or the library's) is kept in
// a text file, so that the next run need not try again: `choices` in $TAPIR_CACHE, else in $XDG_CACHE_HOME/tapir, else in $HOME/.cache/tapir. Below a first line
// that names the format, a line is
//   checksum <tab> key <tab> choice
// appended by one write, so that programs may share the file; of several with one key the last counts. The file is a hint: a line that
// is cut or changed is skipped, a file that is not ours is neither used nor touched, and where nothing can be written choices live as
// long as the program.
namespace tapir::inline v0 {

class Choices {
 public:
  /// The file is read at the first find(). An empty path: nothing is read or written.
  explicit Choices(std::string path) : path_(std::move(path)) {}
  /// What keep() was last given for `key`, in this program or an earlier one; "" where there is nothing.
  std::string find(const std::string& key);
  /// Neither may hold tabs or line ends (then nothing is kept) or be long: 1,000 bytes in all.
  void keep(const std::string& key, const std::string& choice);

 private:
  void read();
  std::mutex mutex_;
  std::string path_;
  bool was_read_ = false;
  std::map<std::string, std::string> choices_;
};

/// The store of this program.
Choices& kept_choices();
/// Where Tapir keeps what it need not find out twice, by the environment; "" where there is no place.
std::string cache_folder();
/// The file of choices in there; "" likewise.
std::string path_of_choices();
/// The CPU's, as Linux has it; "CPU" where it has none.
std::string name_of_processor();
/// FNV-1a in hexadecimal digits: finds cut and edited files.
std::string checksum(std::string_view text);
/// A key: "NVIDIA H200|cudnn 91900|conv ...". What is found for one device or version of a library says nothing about another.
std::string choice_key(std::string_view device, std::string_view library, int64_t version, std::string_view signature);

}  // namespace tapir::inline v0
