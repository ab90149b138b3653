// What a launch is, instead of the module: as text, and as JSON for programs.
// RUN: aicf-opt --select-kernels --describe %s | filecheck %s
// RUN: aicf-opt --select-kernels --bufferize --plan-memory --describe=text %s | filecheck %s --check-prefix=PLAN
// RUN: aicf-opt --describe=json %s | filecheck %s --check-prefix=JSON
// RUN: not aicf-opt --describe=xml %s 2>&1 | filecheck %s --check-prefix=FORM

// CHECK:      %y = gemm_epilogue, kernel gemm_epilogue_cpu_blas
// CHECK:        <- a         %x f32[4, 3] dense
// CHECK-NEXT:   <- b         %w f32[5, 3] dense
// CHECK-NEXT:   <- bias      %b f32[5] dense
// CHECK-NEXT:   -> out       %y f32[4, 5] dense
// CHECK-NEXT:      trans_a = false
// CHECK-NEXT:      trans_b = true
// CHECK-NEXT:      allow_tf32 = false
// CHECK-NEXT:      act = "relu"
// CHECK-NEXT:      act_grad = "none"
// CHECK-NEXT:   at model.py:12, layer head: Linear

// PLAN:      @k0 = gemm_epilogue, kernel gemm_epilogue_cpu_blas
// PLAN:        <- a         @x f32[4, 3] dense
// PLAN:        at model.py:12, layer head: Linear

// JSON:      "version": 1,
// JSON:      "launch": "%y",
// JSON-NEXT: "op": "gemm_epilogue",
// JSON-NEXT: "kernel_id": null,

// FORM: argument --describe: invalid choice: 'xml' (choose from 'text', 'json')

func.func @head(
    %x: tensor<4x3xf32> {aicf.role = "input", aicf.name = "x"},
    %w: tensor<5x3xf32> {aicf.role = "param", aicf.name = "weight"},
    %b: tensor<5xf32> {aicf.role = "param", aicf.name = "bias"})
    -> (tensor<4x5xf32> {aicf.role = "output", aicf.name = "y"}) {
  %y = kernel.gemm_epilogue a(%x) b(%w) bias(%b) -> out {act = "relu", trans_b = true}
    : (tensor<4x3xf32>, tensor<5x3xf32>, tensor<5xf32>) -> tensor<4x5xf32> loc("head: Linear"("model.py":12:1))
  func.return %y : tensor<4x5xf32>
}
