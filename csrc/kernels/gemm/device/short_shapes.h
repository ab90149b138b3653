// The tile of sums of few terms.
#pragma once
#include "kernels/gemm/device/shapes.h"

namespace aicf::gemm {

// f32 of few terms: a warp computes a row of BN, each thread TN columns of it.
struct ShortSums {
  static constexpr int BM = 32, BN = 128, BK = 16, TN = 4;  // BK: the most terms
  static constexpr int kThreads = 256;
  static constexpr int kResident = 2;  // a thread has the BK x TN elements of its columns in registers
  // Fours of terms are read at once; of columns what is written at once lies in different banks.
  static constexpr int kPitchOfRows = BK + 4, kPitchOfColumns = BN + 4;
};

template <bool TRANS_A, bool TRANS_B>
struct SharedMemory<ShortSums, TRANS_A, TRANS_B> {
  static constexpr int kBytes =
      (ShortSums::BM * ShortSums::kPitchOfRows + ShortSums::BK * ShortSums::kPitchOfColumns) * 4;
};

}  // namespace aicf::gemm
