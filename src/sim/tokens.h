// The stand-ins for a tokenizer, a chat template and a model.
//
// Place       The engine's OpenAI endpoints and its scheduler. Pure; any thread.
// Text        One token a byte, its id the byte's value. A chat is its messages one after the
//             other, each with its role in front, and the assistant's role at the end: a
//             conversation that goes on begins with all tokens of what was said before, answers
//             included.
// Answers     Letters and spaces that depend on the prompt and the position alone, so that every
//             engine answers the same prompt alike and an answer's text becomes the same tokens
//             again.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace xms::sim {

// Appends to `tokens`.
void TokenizeText(std::string_view text, std::vector<std::uint32_t>& tokens);
void TokenizeMessage(std::string_view role, std::string_view content,
                     std::vector<std::uint32_t>& tokens);
// What ends a chat prompt: the turn of the assistant begins.
void TokenizeAssistantTurn(std::vector<std::uint32_t>& tokens);

std::uint64_t PromptDigest(std::span<const std::uint32_t> prompt);
std::uint32_t GeneratedToken(std::uint64_t prompt_digest, std::uint32_t index);
void AppendTokenText(std::uint32_t token, std::string& text);

}  // namespace xms::sim
