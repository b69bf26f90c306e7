#include "gateway/access.h"

#include <cstddef>
#include <string>

#include "base/str_cat.h"

namespace xms::gateway {

bool EqualsInConstantTime(std::string_view given, std::string_view secret) {
  if (secret.empty()) return given.empty();
  std::size_t difference = given.size() ^ secret.size();
  for (std::size_t i = 0, j = 0; i < given.size(); ++i) {
    difference |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(secret[j]);
    j = j + 1 == secret.size() ? 0 : j + 1;
  }
  return difference == 0;
}

std::optional<GatewayError> CheckToken(const http::Request& request, std::string_view token) {
  if (token.empty()) return std::nullopt;
  const std::string* given = request.headers.Find(kTokenHeader);
  if (given == nullptr) {
    return GatewayError{ErrorKind::kTokenMissing,
                        base::StrCat("internal paths need the header `", kTokenHeader,
                                     "`; send the service's token"),
                        std::string(kTokenHeader)};
  }
  if (!EqualsInConstantTime(*given, token)) {
    return GatewayError{
        ErrorKind::kTokenWrong,
        base::StrCat("`", kTokenHeader, "` is not this service's token; see --internal_api_token"),
        std::string(kTokenHeader)};
  }
  return std::nullopt;
}

std::optional<GatewayError> CheckRegistryWrite(const http::Request& request,
                                               std::string_view token) {
  if (!token.empty() || request.peer_is_loopback) return std::nullopt;
  return GatewayError{
      ErrorKind::kLoopbackOnly,
      "without --internal_api_token instances can be registered from loopback only; "
      "start the service with a token to allow other machines",
      ""};
}

}  // namespace xms::gateway
