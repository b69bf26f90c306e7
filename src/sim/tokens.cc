#include "sim/tokens.h"

namespace xms::sim {
namespace {

// The finalizer of SplitMix64: spreads every bit of its input over the output.
std::uint64_t Mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

}  // namespace

void TokenizeText(std::string_view text, std::vector<std::uint32_t>& tokens) {
  for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
}

void TokenizeMessage(std::string_view role, std::string_view content,
                     std::vector<std::uint32_t>& tokens) {
  TokenizeText("<|", tokens);
  TokenizeText(role, tokens);
  TokenizeText("|>", tokens);
  TokenizeText(content, tokens);
}

void TokenizeAssistantTurn(std::vector<std::uint32_t>& tokens) {
  TokenizeMessage("assistant", "", tokens);
}

std::uint64_t PromptDigest(std::span<const std::uint32_t> prompt) {
  std::uint64_t digest = prompt.size();
  for (const std::uint32_t token : prompt) digest = Mix(digest ^ token);
  return digest;
}

std::uint32_t GeneratedToken(std::uint64_t prompt_digest, std::uint32_t index) {
  if (index % 6 == 5) return ' ';
  return static_cast<std::uint32_t>('a' + Mix(prompt_digest + index) % 26);
}

void AppendTokenText(std::uint32_t token, std::string& text) {
  text.push_back(token < 128 ? static_cast<char>(token) : '?');
}

}  // namespace xms::sim
