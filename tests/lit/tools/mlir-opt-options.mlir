// The options of mlir-opt, in its spelling and without the prefix.
// RUN: aicf-opt %s --pass-pipeline="builtin.module(canonicalize,cse)" | filecheck %s
// RUN: aicf-opt %s --pass-pipeline="any(canonicalize,cse)" --verify-each=true | filecheck %s
// RUN: aicf-opt %s --pass-pipeline="canonicalize,cse" --verify-each=0 | filecheck %s
// RUN: aicf-opt %s --dce --pass-pipeline="builtin.module( cse )" --mlir-timing 2>&1 >/dev/null | filecheck %s --check-prefix=TIMING
// RUN: aicf-opt %s --pass-pipeline="builtin.module(lower,select-kernels{target=sm_90})" | filecheck %s --check-prefix=TARGET
// RUN: aicf-opt %s --cse --dce --mlir-print-ir-before-all 2>&1 >/dev/null | filecheck %s --check-prefix=BEFORE
// RUN: aicf-opt %s --cse --dce --mlir-print-ir-after-all 2>&1 >/dev/null | filecheck %s --check-prefix=AFTER
// RUN: aicf-opt %s --cse --dce --lower --mlir-print-ir-before=dce,lower 2>&1 >/dev/null | filecheck %s --check-prefix=NAMED
// RUN: aicf-opt %s --cse --dce --lower --print-ir-before=dce --print-ir-before lower 2>&1 >/dev/null | filecheck %s --check-prefix=NAMED
// RUN: aicf-opt %s --cse --dce --mlir-print-ir-after=cse 2>&1 >/dev/null | filecheck %s --check-prefix=ONE
// RUN: aicf-opt %s --dce --cse --cse --mlir-print-ir-after-change 2>&1 >/dev/null | filecheck %s --check-prefix=ONE
// RUN: aicf-opt %s --dce --cse --lower --mlir-print-ir-after=dce,cse --mlir-print-ir-after-change 2>&1 >/dev/null | filecheck %s --check-prefix=ONE
// RUN: aicf-opt %s --mlir-print-debuginfo | filecheck %s --check-prefix=DEBUGINFO
// RUN: aicf-opt %s --mlir-print-op-generic | filecheck %s --check-prefix=OPFORM
// RUN: aicf-opt %s --mlir-elide-elementsattrs-if-larger=3 | filecheck %s --check-prefix=ELIDED
// RUN: aicf-opt %s --elide-elementsattrs-if-larger=3 --print-op-generic | aicf-opt | filecheck %s --check-prefix=ELIDED
// RUN: aicf-opt %s --mlir-elide-elementsattrs-if-larger 4 | filecheck %s --check-prefix=WHOLE
// RUN: aicf-opt --help | filecheck %s --check-prefix=HELP

// CHECK:     func.func private @four
// CHECK:     %a = nn.relu
// CHECK-NOT: nn.relu

// TIMING:      dce
// TIMING-NEXT: verify after passes
// TIMING-NEXT: cse

// TARGET: id "relu_f32

// BEFORE:      // -----// IR dump before cse //----- //
// BEFORE:      %b = nn.relu
// BEFORE:      // -----// IR dump before dce //----- //
// BEFORE-NOT:  %b = nn.relu

// AFTER:       // -----// IR dump after cse //----- //
// AFTER:       // -----// IR dump after dce //----- //

// NAMED-NOT:   before cse
// NAMED:       // -----// IR dump before dce //----- //
// NAMED:       // -----// IR dump before lower //----- //

// ONE:         // -----// IR dump after cse //----- //
// ONE-NOT:     IR dump

// DEBUGINFO:   nn.relu %x : tensor<4xf32> loc("{{.*}}mlir-opt-options.mlir":[[# @LINE + 23]]:8)
// OPFORM:      "nn.relu"(%x)
// ELIDED:      @four(){{.*}} attributes {a = dense_resource<__elided__> : tensor<4xi32>}
// ELIDED:      @list(){{.*}} attributes {a = [dense_resource<__elided__> : tensor<4xi32>]}
// ELIDED:      @same(){{.*}} attributes {a = dense<1> : tensor<8xi32>}
// ELIDED:      @three(){{.*}} attributes {a = dense<[1, 2, 3]> : tensor<3xi32>}
// WHOLE:       @four(){{.*}} attributes {a = dense<[1, 2, 3, 4]> : tensor<4xi32>}

// HELP: --pass-pipeline PIPELINE
// HELP: --print-ir-before-all, --mlir-print-ir-before-all
// HELP: --print-ir-after-all, --mlir-print-ir-after-all
// HELP: --print-ir-after-change, --mlir-print-ir-after-change
// HELP: --print-debuginfo, --mlir-print-debuginfo
// HELP: --timing, --mlir-timing
// HELP: --print-ir-before PASSES, --mlir-print-ir-before PASSES
// HELP: --print-ir-after PASSES, --mlir-print-ir-after PASSES
// HELP: --elide-elementsattrs-if-larger N, --mlir-elide-elementsattrs-if-larger N
func.func private @four() attributes {a = dense<[1, 2, 3, 4]> : tensor<4xi32>}
func.func private @list() attributes {a = [dense<[1, 2, 3, 4]> : tensor<4xi32>]}
func.func private @same() attributes {a = dense<1> : tensor<8xi32>}
func.func private @three() attributes {a = dense<[1, 2, 3]> : tensor<3xi32>}

func.func @twice(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = nn.relu %x : tensor<4xf32>
  %b = nn.relu %x : tensor<4xf32>
  %c = nn.add %a, %b : tensor<4xf32>
  func.return %c : tensor<4xf32>
}
