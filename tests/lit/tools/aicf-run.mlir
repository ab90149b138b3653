// One file, four ways to run it: interpreted, lowered for a device, compared, and as a plan with its kernel ids.
// RUN: aicf-run %s | filecheck %s
// RUN: aicf-run %s --device cpu | filecheck %s
// RUN: aicf-opt %s -p lower | aicf-run - | filecheck %s
// RUN: aicf-run %s --compare=interp | filecheck %s --check-prefix=SAME
// RUN: aicf-opt %s -p lower,select-kernels,bufferize,plan-memory | aicf-run - --trace | filecheck %s --check-prefix=TRACE

// CHECK:      name  dtype    shape  mean  min  max  crc32
// CHECK-NEXT: y     float32  2x3    6     6    6    {{[0-9a-f]+}}

// SAME:       y     float32  0 {{.*}} ok

// TRACE:      @k0 gemm_cpu_blas
// TRACE-NEXT: @k1 relu_cpu
func.func @f(%x: tensor<2x4xf32> {aicf.role = "input", aicf.name = "x"})
    -> (tensor<2x3xf32> {aicf.role = "output", aicf.name = "y"}) {
  %ones = nn.constant {value = 1.0} : tensor<2x4xf32>
  %w = nn.constant {value = 1.5} : tensor<4x3xf32>
  %y = nn.matmul %ones, %w : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
  %z = nn.relu %y : tensor<2x3xf32>
  func.return %z : tensor<2x3xf32>
}
