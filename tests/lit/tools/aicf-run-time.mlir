// --time measures the launches behind the results, of a plan and of what is lowered to one; no number of seconds is asserted.
// RUN: aicf-run %s --time=3 | filecheck %s
// RUN: aicf-run --time %s | filecheck %s --check-prefix=DEFAULT
// RUN: aicf-opt %s -p lower,select-kernels,bufferize,plan-memory | aicf-run - --time=2 | filecheck %s --check-prefix=PLAN
// RUN: aicf-run %s --time=2 --time-json=%t.json --time-trace=%t.trace && filecheck %s --check-prefix=JSON < %t.json
// RUN: filecheck %s --check-prefix=TRACE < %t.trace

// CHECK:      y     float32  2x3
// CHECK-NEXT: launch {{ *}}time {{ *}}least
// CHECK-NEXT: @k0 {{.*}} 104 {{.*}} gemm_epilogue_cpu_blas
// CHECK:      time      % count  op
// CHECK-NEXT: 100.0%     1  gemm_epilogue
// CHECK:      f on cpu, {{[0-9]+}} threads: 1 launches, the faster half of 3 runs
// CHECK:      floor: copy {{.*}}B/s, product of f32 {{.*}}flop/s

// DEFAULT:    the faster half of 20 runs

// PLAN:       @k0 {{.*}} 104 {{.*}} gemm_cpu_blas
// PLAN:       f on cpu, {{[0-9]+}} threads: 2 launches, the faster half of 2 runs

// JSON:       "version": 1,
// JSON-NEXT:  "step": "f",
// JSON:       "launch": "@k0",
// JSON-NEXT:  "op": "gemm_epilogue",
// JSON:       "bytes": 104,
// JSON-NEXT:  "flops": 54,

// TRACE:      "traceEvents": [{"ph": "M", "name": "process_name"
// TRACE:      "name": "@k0 gemm_epilogue", "cat": "launch", "ts": 0.0
func.func @f(%x: tensor<2x4xf32> {aicf.role = "input", aicf.name = "x"})
    -> (tensor<2x3xf32> {aicf.role = "output", aicf.name = "y"}) {
  %ones = nn.constant {value = 1.0} : tensor<2x4xf32>
  %w = nn.constant {value = 1.5} : tensor<4x3xf32>
  %y = nn.matmul %ones, %w : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
  %z = nn.relu %y : tensor<2x3xf32>
  func.return %z : tensor<2x3xf32>
}
