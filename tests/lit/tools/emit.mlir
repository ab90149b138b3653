// The code of the generated kernels of a plan, in the language of its target.
//
// RUN: aicf-opt -p lower,fuse,select-kernels,bufferize --emit=llvm %s | filecheck %s --check-prefix=LLVM
// RUN: aicf-opt -p "lower,fuse,select-kernels{target=sm_90},bufferize" --emit=cuda %s | filecheck %s --check-prefix=CUDA
// RUN: not aicf-opt -p lower,fuse,select-kernels,bufferize --emit=cuda %s 2>&1 | filecheck %s --check-prefix=OTHER
// RUN: not aicf-opt -p lower,fuse,select-kernels --emit=llvm %s 2>&1 | filecheck %s --check-prefix=NOPLAN

// LLVM: define void @gen_rowwise_{{[0-9a-f]+}}
// CUDA: extern "C" __global__ void {{.*}}gen_rowwise_{{[0-9a-f]+}}
// OTHER: kernels for cpu are not written as cuda; choose the target with --target
// NOPLAN: there is no plan whose kernels could be written as llvm; run bufferize, or --stage plan

func.func @normalised(%x: tensor<8x16xf32>, %residual: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %h = nn.add %x, %residual : tensor<8x16xf32>
  %y = nn.softmax %h : tensor<8x16xf32>
  func.return %y : tensor<8x16xf32>
}
