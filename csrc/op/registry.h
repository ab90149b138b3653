// The one truth on kernels: every schema and every variant, registered once by its family.
#pragma once
#include <deque>
#include <string>
#include <vector>

#include "op/variant.h"

namespace aicf {

class KernelRegistry;

// What a family of kernels registers: a static object at the end of its variants.cpp, and nothing elsewhere.
struct Family {
  using Register = void (*)(KernelRegistry&);
  explicit Family(Register add) { all().push_back(add); }
  static std::vector<Register>& all();  // in the order in which their files happen to be initialised
};

class KernelRegistry {
 public:
  static KernelRegistry& get();  // filled by all families on first use: ops by their numbers

  void add(OpSchema schema);        // throws on a number or a name that is already there
  void add(KernelVariant variant);  // throws on a name that is already there; order is preference

  // Each CPU kernel is made ready, and chooses, as the one that `find` has for its name; the first name for
  // which it has nothing, and then nothing is changed. Empty on success.
  std::string replace_cpu_kernels(const KernelVariant* (*find)(const char* name));

  const std::deque<OpSchema>& schemas() const { return schemas_; }
  const OpSchema* schema(const std::string& name) const;
  const OpSchema* schema(int64_t number) const;
  const KernelVariant* find(const std::string& name) const;
  const std::vector<KernelVariant>& variants() const { return variants_; }

  // Whether `variant` runs `op` on `target`; the reason if not. Does not ask whether this build can launch
  // it.
  Status accepts(const KernelVariant& variant, const OpDesc& op, const Target& target) const;
  // The named variant, or the first that accepts `op`, which check_op accepts, and is preferred for it, else
  // the first that accepts it; the error lists every candidate with its reason.
  Status select(const OpDesc& op, const Target& target, const std::string& name,
                const KernelVariant** out) const;

 private:
  void sort();  // schemas by number, variants by that of their op: no order of files shows

  std::deque<OpSchema> schemas_;  // their addresses stay once it is filled
  std::vector<KernelVariant> variants_;
};

// A kernel as a plan names it: "gemm_f16_tc", or with a choice "gemm_f16_tc[64x64]".
struct KernelName {
  explicit KernelName(const std::string& text);
  std::string id, choice;
};

// Makes a launch of `variant` ready, with the choice that `name` makes. Refuses what is not in this build, a
// choice that the kernel has not, and a launch that names another kernel.
Status prepare_kernel(const KernelVariant& variant, const OpDesc& op, const std::string& name,
                      LaunchPointer* out);

}  // namespace aicf
