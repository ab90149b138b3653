// What runs each op fastest on this machine, as a lock; the pass select-kernels obeys it.
// RUN: aicf-tune %s | filecheck %s --check-prefix=LOCK
// RUN: aicf-tune %s -o %t.lock
// RUN: aicf-opt %s -p 'lower,fuse,select-kernels{lock="%t.lock"}' | filecheck %s --check-prefix=TAKEN
// RUN: sed 's/gemm_epilogue_cpu_[a-z]*\(\[[a-z]*\]\)\?"$/gemm_epilogue_cpu_plain"/' %t.lock > %t.edited.lock
// RUN: aicf-opt %s -p 'lower,fuse,select-kernels{lock="%t.edited.lock"}' | filecheck %s --check-prefix=EDITED
// RUN: sed 's/8, 8/8, 9/' %t.lock > %t.other.lock
// RUN: not aicf-opt %s -p 'lower,fuse,select-kernels{lock="%t.other.lock"}' 2>&1 | filecheck %s --check-prefix=DRIFT
// RUN: not aicf-opt %s -p 'lower,fuse,select-kernels{lock="%t.missing"}' 2>&1 | filecheck %s --check-prefix=MISSING
// RUN: not aicf-tune %s --targets 2>&1 | filecheck %s --check-prefix=OPTION

// LOCK:      version = 1
// LOCK-NEXT: generated = []
// LOCK:      [machine]
// LOCK-NEXT: target = "cpu"
// LOCK:      {{\[\[}}op]]
// LOCK-NEXT: use = "gemm_epilogue(a: f32[8, 8], b: f32[8, 8]) -> (out: f32[8, 8]) {act = relu}"
// LOCK-NEXT: kernel = "gemm_epilogue_cpu_
// LOCK-NEXT: microseconds = {{[0-9.]+}}
// LOCK-NEXT: rejected = ["gemm_epilogue_cpu_{{.*}} us"]
// LOCK:      {{\[\[}}op]]
// LOCK-NEXT: use = "reduce_sum(x: f32[8, 8]) -> (y: f32[8]) {dims = [0]}"
// LOCK-NEXT: kernel = "reduce_sum_cpu"
// LOCK-NOT:  microseconds
// TAKEN:     kernel.gemm_epilogue a(%x) b(%x) {{.*}} id "gemm_epilogue_cpu_
// TAKEN:     kernel.reduce_sum {{.*}} id "reduce_sum_cpu"
// EDITED:    kernel.gemm_epilogue a(%x) b(%x) {{.*}} id "gemm_epilogue_cpu_plain"
// DRIFT:     has no kernel for 2 ops of this step:
// DRIFT-NEXT: + gemm_epilogue(a: f32[8, 8], b: f32[8, 8]) -> (out: f32[8, 8]) {act = relu}
// DRIFT-NEXT: + reduce_sum(x: f32[8, 8]) -> (y: f32[8]) {dims = [0]}
// MISSING:   cannot read the lock {{.*}}.missing: {{.*}}; make one with aicf-tune
// OPTION:    aicf-tune: error: unknown option '--targets'; did you mean --target?
func.func @f(%x: tensor<8x8xf32>) -> tensor<8xf32> {
  %0 = nn.matmul %x, %x : tensor<8x8xf32>
  %1 = nn.relu %0 : tensor<8x8xf32>
  %2 = nn.sum %1 {dims = array<i64: 0>} : (tensor<8x8xf32>) -> tensor<8xf32>
  func.return %2 : tensor<8xf32>
}
