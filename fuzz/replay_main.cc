// Feeds files to a fuzz target once each, so that CTest replays the corpus and every past failure in
// builds without libFuzzer. Arguments are files or folders; a folder that does not exist is empty.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

bool Replay(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    std::fprintf(stderr, "cannot read %s\n", file.c_str());
    return false;
  }
  const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  // Printed before the run: a crash leaves the name of its input as the last line.
  std::printf("%s (%zu bytes)\n", file.c_str(), bytes.size());
  std::fflush(stdout);
  // An own allocation of exactly this size, so that AddressSanitizer sees the first byte read too far.
  const std::vector<std::uint8_t> input(bytes.begin(), bytes.end());
  LLVMFuzzerTestOneInput(input.data(), input.size());
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  bool ok = true;
  std::size_t count = 0;
  for (int i = 1; i < argc; ++i) {
    const std::filesystem::path path(argv[i]);
    std::error_code error;
    if (std::filesystem::is_regular_file(path, error)) {
      ok = Replay(path) && ok;
      ++count;
      continue;
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path, error)) {
      if (entry.is_regular_file() && entry.path().filename() != ".gitignore") {
        ok = Replay(entry.path()) && ok;
        ++count;
      }
    }
  }
  LLVMFuzzerTestOneInput(nullptr, 0);
  std::printf("%zu files replayed\n", count);
  return ok ? 0 : 1;
}
