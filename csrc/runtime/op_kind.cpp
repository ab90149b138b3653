#include "runtime/op_kind.h"

namespace aicf {

const char* op_name(OpKind kind) {
  switch (kind) {
#define X(name, number, text) \
  case OpKind::name:          \
    return text;
    AICF_OP_KINDS(X)
#undef X
  }
  return nullptr;
}

}  // namespace aicf
