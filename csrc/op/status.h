// The result of every fallible runtime call: a code that selects the Python exception, and one message for
// the user.
#pragma once
#include <string>
#include <utility>

namespace aicf {

enum class Code { Ok, Invalid, Unsupported, State, Capture, Device };

class [[nodiscard]] Status {
 public:
  static Status ok() { return Status(Code::Ok, {}); }
  // A call whose arguments are wrong: arity, shape, dtype, device, alignment, attribute.
  static Status invalid(std::string m) { return Status(Code::Invalid, std::move(m)); }
  // A valid operation that a kernel, a target or this build cannot run; the message says why.
  static Status unsupported(std::string m) { return Status(Code::Unsupported, std::move(m)); }
  // A call in the wrong state: replay before capture, a graph that is already open.
  static Status state(std::string m) { return Status(Code::State, std::move(m)); }
  static Status capture(std::string m) { return Status(Code::Capture, std::move(m)); }
  // The device refused: out of memory, a failed launch, no driver.
  static Status device(std::string m) { return Status(Code::Device, std::move(m)); }

  bool is_ok() const { return code_ == Code::Ok; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  // The same error with the place where it happened in front: "input 0: null data".
  Status at(const std::string& place) const { return Status(code_, place + ": " + message_); }

 private:
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}
  Code code_;
  std::string message_;
};

}  // namespace aicf

#define AICF_TRY(expr)                              \
  do {                                              \
    ::aicf::Status aicf_status_ = (expr);           \
    if (!aicf_status_.is_ok()) return aicf_status_; \
  } while (0)
