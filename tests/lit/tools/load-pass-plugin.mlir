// Passes from outside the tree: of a file, here the one of examples/, used like any other.
// RUN: aicf-opt %s --load-pass-plugin=%examples/prefer_kernels.py --prefer-kernels=kernels=relu_f16,gemm_cpu_plain --select-kernels | filecheck %s
// RUN: aicf-opt %s -p "prefer-kernels{kernels=gemm_cpu_plain},select-kernels" --load-pass-plugin %examples/prefer_kernels.py | filecheck %s
// RUN: aicf-opt %s --load-pass-plugin=%examples/prefer_kernels.py --prefer-kernels=kernels=relu_f16 --remarks 2>&1 >/dev/null | filecheck %s --check-prefix=REMARK
// RUN: aicf-opt %s --load-pass-plugin=%examples/prefer_kernels.py --select-kernels | filecheck %s --check-prefix=WITHOUT
// RUN: aicf-opt --load-pass-plugin=%examples/prefer_kernels.py --list-passes | filecheck %s --check-prefix=LIST
// RUN: aicf-opt --load-pass-plugin=%examples/prefer_kernels.py --help | filecheck %s --check-prefix=HELP
// RUN: not aicf-opt %s --prefer-kernels=kernels=relu_f16 2>&1 | filecheck %s --check-prefix=UNKNOWN
// RUN: not aicf-opt %s --load-pass-plugin=%examples/prefer_kernels.py --prefer-kernels=kernels=relu_fast 2>&1 | filecheck %s --check-prefix=OPTION
// RUN: rm -f %t.py
// RUN: not aicf-opt %s --load-pass-plugin=%t.py 2>&1 | filecheck %s --check-prefix=MISSING
// RUN: echo "import nowhere_at_all" > %t.py
// RUN: not aicf-opt %s --load-pass-plugin=%t.py 2>&1 | filecheck %s --check-prefix=BROKEN

// CHECK: kernel.gemm a(%x) b(%x) id "gemm_cpu_plain"
// CHECK: kernel.relu x(%y) id "relu_cpu"

// REMARK:      load-pass-plugin.mlir:[[# @LINE + 20]]:8: remark: 'kernel.relu' op does not run relu_f16: runs on cuda
// REMARK-NOT:  remark

// WITHOUT: id "gemm_cpu_blas"

// LIST:      --select-kernels
// LIST:      --prefer-kernels
// LIST-NEXT:     Give every launch the first of some kernels that runs it, and leave the others to select-kernels.
// LIST-NEXT:     its options: kernels: tuple[str, ...] = (required), target: str = cpu
// LIST-NEXT:     from the plugin {{.*}}examples/prefer_kernels.py

// HELP: --load-pass-plugin PLUGIN
// HELP: verify-host-scalars {{.*}} dce prefer-kernels

// UNKNOWN: aicf-opt: error: unknown option '--prefer-kernels'
// OPTION:  aicf-opt: error: pass 'prefer-kernels': no kernel is called 'relu_fast'; its options: kernels: tuple[str, ...]
// MISSING: aicf-opt: error: pass plugin '{{.*}}.py': there is no such file
// BROKEN:  aicf-opt: error: pass plugin '{{.*}}.py': ModuleNotFoundError: No module named 'nowhere_at_all' ({{.*}}.py, line 1)
func.func @f(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %y = kernel.gemm a(%x) b(%x) : tensor<4x4xf32>
  %z = kernel.relu x(%y) : tensor<4x4xf32>
  func.return %z : tensor<4x4xf32>
}
