#include <tapir/io/sha256.h>

#include "../catch.h"
#include "temporary.h"

using namespace tapir;
using namespace tapir_tests;

TEST_CASE("SHA-256 of the standard's examples and around the block size") {
  CHECK(io::sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(io::sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(io::sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(io::sha256(std::string(1000000, 'a')) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  TemporaryFolder folder;
  for (const int size : {0, 1, 55, 56, 63, 64, 65, 119, 120, 128, 300000}) {
    spit(folder / "f", std::string(size_t(size), 'q'));
    CHECK(io::sha256_of_file(folder / "f") == io::sha256(std::string(size_t(size), 'q')));
  }
}
