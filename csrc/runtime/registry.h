// The one truth on kernels: every schema and every variant, registered once by register_all.cpp.
#pragma once
#include <string>
#include <vector>

#include "runtime/kernel.h"

namespace aicf {

class KernelRegistry {
 public:
  static KernelRegistry& get();  // filled by register_all() on first use

  void add(const OpSchema& schema);        // throws on a kind that is already there
  void add(const KernelVariant& variant);  // throws on a name that is already there; order is preference

  // Each CPU kernel is launched by what `find` has for its name; the first name for which it has nothing, and
  // then nothing is changed. Empty on success.
  std::string replace_cpu_launchers(KernelLauncher (*find)(const char* name));

  const OpSchema* schema(OpKind kind) const;
  const KernelVariant* find(const std::string& name) const;
  const std::vector<KernelVariant>& variants() const { return variants_; }

  // Schema check plus known and required attributes.
  Status check(const OpDesc& op) const;
  // Whether `variant` runs `op` on `target`; the reason if not. Does not ask whether this build can launch
  // it.
  Status accepts(const KernelVariant& variant, const OpDesc& op, const Target& target) const;
  // The named variant, or the first that accepts `op`; the error lists every candidate with its reason.
  Status select(const OpDesc& op, const Target& target, const std::string& name,
                const KernelVariant** out) const;

 private:
  std::vector<KernelVariant> variants_;
  std::vector<OpSchema> schemas_;
};

void register_all(KernelRegistry& registry);

}  // namespace aicf
