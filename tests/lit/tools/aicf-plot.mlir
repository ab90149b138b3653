// A plan as a picture: its memory, or its launches; a file of any stage is planned first.
// RUN: aicf-plot %s | filecheck %s --check-prefix=MEMORY
// RUN: aicf-plot --timeline %s | filecheck %s --check-prefix=LAUNCHES
// RUN: aicf-opt -p "lower,fuse,select-kernels{target=sm_90},bufferize,plan-memory" %s | aicf-plot - | filecheck %s --check-prefix=TARGET
// RUN: not aicf-plot --target sm_9 %s 2>&1 | filecheck %s --check-prefix=UNKNOWN
// RUN: not aicf-plot --timelines %s 2>&1 | filecheck %s --check-prefix=OPTION
// RUN: not aicf-plot %s.missing 2>&1 | filecheck %s --check-prefix=MISSING
// RUN: aicf-opt -p "lower,fuse,select-kernels{target=sm_90},bufferize,plan-memory" %s | not aicf-plot - --target cpu 2>&1 | filecheck %s --check-prefix=OTHER

// MEMORY:      <svg xmlns="http://www.w3.org/2000/svg"
// MEMORY-NEXT: <title>Memory of @head for cpu</title>
// MEMORY:      peak {{[0-9,]+}} B ({{.*}}): all arenas, held for the whole step
// MEMORY:      input: read from the batch
// MEMORY:      <title>@x: f32[4, 3]
// MEMORY-NEXT: input, offset 0, 48 bytes
// MEMORY-NEXT: named "x"
// MEMORY-NEXT: first launch 0: @k0 gemm_epilogue
// MEMORY-NEXT: last launch 0: @k0 gemm_epilogue
// MEMORY-NEXT: model.py:12, layer head: Linear
// MEMORY:      <title>@weight: f32[5, 3]
// MEMORY:      output: any other result
// MEMORY:      k0 gemm_epilogue</text>
// MEMORY:      </svg>

// LAUNCHES:      <title>Launches of @head for cpu</title>
// LAUNCHES:      1 launch: 1 one after another, 1 along the longest path of what must wait</text>
// LAUNCHES:      gemm_epilogue × 1
// LAUNCHES:      <title>@k0 gemm_epilogue
// LAUNCHES-NEXT: kernel gemm_epilogue_cpu_blas
// LAUNCHES-NEXT: earliest start: depth 0, on the longest path
// LAUNCHES-NEXT: at model.py:12, layer head: Linear

// TARGET: <title>Memory of @head for sm_90</title>

// UNKNOWN: aicf-plot: error: there is no target 'sm_9'; there are cpu, sm_75
// OPTION:  aicf-plot: error: unknown option '--timelines'; did you mean --timeline or --times?
// MISSING: error: cannot be read: No such file or directory
// OTHER:   <stdin>:2:3: error: 'plan.program' op the plan is for target sm_90 and not for cpu: leave --target out

func.func @head(
    %x: tensor<4x3xf32> {aicf.role = "input", aicf.name = "x"},
    %w: tensor<5x3xf32> {aicf.role = "param", aicf.name = "weight"},
    %b: tensor<5xf32> {aicf.role = "param", aicf.name = "bias"})
    -> (tensor<4x5xf32> {aicf.role = "output", aicf.name = "y"}) {
  %y = nn.linear %x, %w, %b
    : (tensor<4x3xf32>, tensor<5x3xf32>, tensor<5xf32>) -> tensor<4x5xf32> loc("head: Linear"("model.py":12:1))
  func.return %y : tensor<4x5xf32>
}
