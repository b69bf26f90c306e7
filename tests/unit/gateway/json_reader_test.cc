#include "gateway/internal/json_reader.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>

namespace xms::gateway::internal {
namespace {

using Json = nlohmann::json;

// The whole document written anew; "" and `error` when it is not valid.
std::string Copy(JsonReader& reader, const std::string& json, JsonError& error) {
  JsonDocument document;
  JsonObject object;
  error = reader.Open(json, document);
  if (error == simdjson::SUCCESS) error = document.get_object().get(object);
  std::string out = "{";
  if (error != simdjson::SUCCESS) return "";
  for (auto entry : object) {
    std::string_view key;
    JsonValue value;
    error = ReadMember(entry, key, value);
    if (error != simdjson::SUCCESS) return "";
    if (out.size() > 1) out += ",";
    out += "\"" + std::string(key) + "\":";
    error = CopyValue(value, 1, &out);
    if (error != simdjson::SUCCESS) return "";
  }
  error = AtEnd(document);
  return error == simdjson::SUCCESS ? out + "}" : "";
}

TEST(GatewayJsonReader, EverySpellingOfANumberIsKeptOrRefused) {
  JsonReader reader;
  JsonError error{};
  for (const std::string number :
       {"0", "-0", "7", "10", "-1", "0.5", "-0.0", "1e5", "1E+05", "1e-0", "123.456e7",
        "18446744073709551616", "-9223372036854775809", "1e999", "-1e-999",
        "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899"}) {
    const std::string document = "{\"n\":" + number + "}";
    EXPECT_EQ(Copy(reader, document, error), document);
    EXPECT_EQ(Copy(reader, "{\"n\": [" + number + " , " + number + "\n] }", error),
              "{\"n\":[" + number + "," + number + "]}");
  }
  for (const std::string number : {"-",   "01",   "-01",   "00", "1.",       ".5",        "1.e5",
                                   "1e",  "1e+",  "1e5.0", "+1", "0x10",     "1_000",     "1-1",
                                   "--1", "1ee5", "1.2.3", "1a", "Infinity", "-Infinity", "NaN"}) {
    EXPECT_EQ(Copy(reader, "{\"n\":" + number + "}", error), "") << number;
    EXPECT_EQ(Copy(reader, "{\"n\":[[" + number + "]]}", error), "") << number;
  }
}

TEST(GatewayJsonReader, WordsAreTakenWholeOnly) {
  JsonReader reader;
  JsonError error{};
  for (const std::string word : {"true", "false", "null"}) {
    EXPECT_EQ(Copy(reader, "{\"w\":\t" + word + "\r\n}", error), "{\"w\":" + word + "}");
    for (const std::string& wrong : {word + "x", word.substr(0, word.size() - 1), word + word}) {
      EXPECT_EQ(Copy(reader, "{\"w\":" + wrong + "}", error), "") << wrong;
    }
  }
}

// Another parser is asked about each: what is valid to it is valid here and means the same.
TEST(GatewayJsonReader, AgreesWithAnotherParserOnMutatedDocuments) {
  const std::string original =
      R"({"a":[1,-2.5e3,"x\"yé",{"b":null,"c":[]}],"d":{"e":{},"f":true},"g":false,"h":"\\"})";
  const std::string alphabet = "{}[]:,\"\\ tfn-0.1eE+\n";
  std::mt19937 random(5);
  JsonReader reader;
  int valid = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = original;
    for (std::size_t changes = random() % 3; changes-- > 0;) {
      const std::size_t at = random() % text.size();
      const char letter = alphabet[random() % alphabet.size()];
      switch (random() % 4) {
        case 0:
          text[at] = letter;
          break;
        case 1:
          text.insert(at, 1, letter);
          break;
        case 2:
          text.erase(at, 1);
          break;
        default:
          text.resize(at + 1);
      }
    }
    JsonError error{};
    const std::string copy = Copy(reader, text, error);
    const bool accepted = Json::accept(text) && text.find_first_not_of(" \n") == text.find('{');
    ASSERT_EQ(!copy.empty(), accepted) << "seed 5, round " << round << ": " << text;
    if (!accepted) continue;
    ++valid;
    ASSERT_EQ(Json::parse(copy), Json::parse(text)) << "seed 5, round " << round;
  }
  EXPECT_GT(valid, 1000) << "mutations leave too few documents valid to prove anything";
}

}  // namespace
}  // namespace xms::gateway::internal
