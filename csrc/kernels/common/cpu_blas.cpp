#include "kernels/common/cpu_blas.h"

#include <dlfcn.h>

#include <cstdlib>
#include <optional>

namespace aicf {
namespace {

// The cblas interface with 32-bit integers; the wheel's symbols carry the prefix scipy_.
constexpr int kRowMajor = 101;
constexpr int kNoTrans = 111;
constexpr int kTrans = 112;
template <class T>
using Gemm = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, T alpha, const T* a, int lda,
                      const T* b, int ldb, T beta, T* c, int ldc);

Gemm<float> g_sgemm = nullptr;
Gemm<double> g_dgemm = nullptr;

template <class T>
void product(Gemm<T> gemm, const BlasProduct& p, const T* a, const T* b, T* c) {
  gemm(kRowMajor, p.trans_a ? kTrans : kNoTrans, p.trans_b ? kTrans : kNoTrans, static_cast<int>(p.m),
       static_cast<int>(p.n), static_cast<int>(p.k), T(1), a, static_cast<int>(p.lda), b,
       static_cast<int>(p.ldb), T(p.add), c, static_cast<int>(p.ldc));
}

// OPENBLAS_NUM_THREADS for as long as this lives: the library reads it once, when it is loaded, and starts
// its threads then. With one it starts none, so none waits for work by spinning.
class OneThread {
 public:
  OneThread() {
    if (const char* value = std::getenv(kName)) before_ = value;
    setenv(kName, "1", 1);
  }
  ~OneThread() { before_ ? setenv(kName, before_->c_str(), 1) : unsetenv(kName); }

 private:
  static constexpr const char* kName = "OPENBLAS_NUM_THREADS";
  std::optional<std::string> before_;
};

}  // namespace

Status load_blas(const std::string& path) {
  if (blas_loaded()) return Status::ok();
  const OneThread setting;
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return Status::device("cannot load the BLAS library: " + std::string(dlerror()));
  auto sgemm = reinterpret_cast<Gemm<float>>(dlsym(library, "scipy_cblas_sgemm"));
  auto dgemm = reinterpret_cast<Gemm<double>>(dlsym(library, "scipy_cblas_dgemm"));
  auto set_num_threads = reinterpret_cast<void (*)(int)>(dlsym(library, "scipy_openblas_set_num_threads"));
  if (!sgemm || !dgemm || !set_num_threads) {
    dlclose(library);
    return Status::device("the BLAS library " + path +
                          " lacks scipy_cblas_sgemm, scipy_cblas_dgemm or scipy_openblas_set_num_threads; "
                          "expected that of scipy-openblas32");
  }
  set_num_threads(1);  // where somebody else has loaded it before
  g_sgemm = sgemm;
  g_dgemm = dgemm;
  return Status::ok();
}

bool blas_loaded() { return g_sgemm != nullptr; }

Status needs_blas() {
  if (blas_loaded()) return Status::ok();
  return Status::state("no BLAS library is loaded; import aicf_mlir, which loads that of scipy-openblas32");
}

void blas_gemm(const BlasProduct& p, const float* a, const float* b, float* c) {
  product(g_sgemm, p, a, b, c);
}
void blas_gemm(const BlasProduct& p, const double* a, const double* b, double* c) {
  product(g_dgemm, p, a, b, c);
}

}  // namespace aicf
