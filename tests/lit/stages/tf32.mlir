// Products that may round their operands to TF32: each launch that comes of them may, whatever joins it, and no other.
// RUN: aicf-opt --stage fused %s | filecheck %s --check-prefix=OWN
// RUN: aicf-opt --stage kernel --target sm_90 %s | filecheck %s --check-prefix=SM90
// RUN: sed s/64x/1048576x/g %s | aicf-opt --stage kernel --target sm_90+cublaslt - | filecheck %s --check-prefix=LT
// RUN: aicf-opt --stage plan %s | aicf-run - --compare=interp | filecheck %s --check-prefix=RAN

// Forward with bias and activation, and with a map; a product without the mark; then backward: the gradients of the weights, of
// an activation, and of a bias beside a product.
// OWN:      kernel.gemm_epilogue a(%x) b(%w0) bias(%b0) -> out {act = "relu", allow_tf32 = true, trans_b = true}
// OWN:      kernel.gemm_map a(%h) b(%w1) {allow_tf32 = true, body = @exp}
// OWN:      kernel.gemm a(%e) b(%w2) :
// OWN:      kernel.gemm_map a(%do) b(%w2) x(%e) {body = @exp_grad, trans_b = true}
// OWN:      kernel.gemm a(%e) b(%do) {trans_a = true}
// OWN:      kernel.gemm a(%h) b(%dy) {allow_tf32 = true, trans_a = true}
// OWN:      kernel.gemm_epilogue a(%dy) b(%w1) saved(%h) -> out {act_grad = "relu", allow_tf32 = true, trans_b = true}
// OWN:      kernel.gemm_epilogue a(%dz) b(%x) -> out, bias_grad {allow_tf32 = true, trans_a = true}

// SM90:     members = "map(8 -> 10), gemm_map(3 -> 1, trans_b, allow_tf32)"} id "gen_horizontal_
// SM90:     kernel.gemm_map a(%h) b(%w1) {allow_tf32 = true, body = @exp} id "gen_gemm_map_
// SM90:     kernel.gemm_map a(%e) b(%w2) x(%t) {body = @squared_error_grad{{.*}}} id "gen_gemm_map_
// SM90:     kernel.gemm_map a(%do) b(%w2) {{.*}}trans_b = true} id "gen_gemm_map_
// SM90:     kernel.gemm_map a(%dy) b(%w1) {{.*}}allow_tf32 = true, {{.*}} id "gen_gemm_map_
// SM90:     members = "rowwise(2 -> 1, reduced 2), gemm_map(12 -> 3, trans_a, allow_tf32), gemm_map(12 -> 3, trans_a), gemm_map(12 -> 3, trans_a, allow_tf32), gemm_map(12 -> 3, trans_a)"} id "gen_horizontal_

// The library multiplies in TF32, and a sum is one of f32.
// LT:       bias(%b0) {{.*}} id "gemm_epilogue_tf32_cublaslt"
// LT:       kernel.gemm a(%h) b(%w1) {allow_tf32 = true} id "gemm_tf32_cublaslt"
// LT:       id "gen_gemm_map_
// LT:       kernel.gemm a(%dy) b(%w1) {{.*}} id "gemm_tf32_cublaslt"
// LT:       kernel.gemm a(%h) b(%dy) {{.*}} id "gemm_tf32_cublaslt"
// LT:       kernel.colwise {{.*}}relu_bwd
// LT:       kernel.gemm a(%dz) b(%x) {allow_tf32 = true, trans_a = true} id "gemm_tf32_cublaslt"

// RAN:      w0
// RAN-NOT:  DIFFERS
func.func @step(
    %x: tensor<64x32xf32> {aicf.role = "input", aicf.name = "x"},
    %t: tensor<64x16xf32> {aicf.role = "input", aicf.name = "t"},
    %w0: tensor<24x32xf32> {aicf.role = "param", aicf.name = "w0"},
    %b0: tensor<24xf32> {aicf.role = "param", aicf.name = "b0"},
    %w1: tensor<24x16xf32> {aicf.role = "param", aicf.name = "w1"},
    %w2: tensor<16x16xf32> {aicf.role = "param", aicf.name = "w2"}
  ) -> (tensor<f32> {aicf.role = "loss", aicf.name = "loss"}) {
  %z = nn.linear %x, %w0, %b0 {allow_tf32 = true} : (tensor<64x32xf32>, tensor<24x32xf32>, tensor<24xf32>) -> tensor<64x24xf32>
  %h = nn.relu %z : tensor<64x24xf32>
  %y = nn.matmul %h, %w1 {allow_tf32 = true} : (tensor<64x24xf32>, tensor<24x16xf32>) -> tensor<64x16xf32>
  %e = nn.exp %y : tensor<64x16xf32>
  %o = nn.matmul %e, %w2 : (tensor<64x16xf32>, tensor<16x16xf32>) -> tensor<64x16xf32>
  %loss = nn.mse_loss %o, %t : (tensor<64x16xf32>, tensor<64x16xf32>) -> tensor<f32>
  func.return %loss : tensor<f32>
}
