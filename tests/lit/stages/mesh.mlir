// A step of two processes: gradients are written into a bucket, the mean is made here, and the vote is the last collective.
// RUN: aicf-opt --stage plan --mesh dp=2 %S/../../../examples/train_step.mlir | filecheck %s
// RUN: aicf-opt --stage plan --target sm_90 --mesh dp=2 %S/../../../examples/train_step.mlir | filecheck %s --check-prefix=GPU
// RUN: aicf-opt --stage plan --mesh dp=2 --zero 1 %S/../../../examples/train_step.mlir | filecheck %s --check-prefix=ZERO
// RUN: aicf-opt --stage plan --target sm_90 --mesh dp=2 --zero 0 %S/../../../examples/train_step.mlir | filecheck %s --check-prefix=ZERO
// RUN: not aicf-opt --stage plan --zero 1 %S/../../../examples/train_step.mlir 2>&1 | filecheck %s --check-prefix=ALONE
// RUN: not aicf-opt --stage plan --mesh dp=0 %S/../../../examples/train_step.mlir 2>&1 | filecheck %s --check-prefix=COUNT

// CHECK:      plan.slot @bucket in @temp[{{[0-9]+}}] : memref<3610xf32>
// CHECK:      plan.launch @{{.*}} -> out(@dw{{.*}})
// CHECK:      plan.launch @{{.*}} all_gather x(@bucket) -> y(@bucket.of_ranks) {group = "dp", ranks = 2}
// CHECK:      plan.launch @{{.*}} all_gather x(@failed) after(@bucket.of_ranks) -> y(@status.of_ranks)
// CHECK:      check_ranks status(@failed) of_ranks(@status.of_ranks) -> status(@failed)
// CHECK-NOT:  all_gather
// CHECK-NOT:  copy
// CHECK:      predicate not @failed

// GPU:      plan.launch @{{.*}} "all_gather_cuda" all_gather x(@bucket) -> y(@bucket.of_ranks) {group = "dp", ranks = 2}
// GPU:      plan.launch @{{.*}} "all_gather_cuda" all_gather x(@failed) after(@bucket.of_ranks) -> y(@status.of_ranks)
// GPU-NEXT: {{.*}}
// GPU-NEXT: plan.launch @{{.*}} "check_ranks_cuda" check_ranks status(@failed) of_ranks(@status.of_ranks) -> status(@failed)
// COUNT: expected a name and a number of processes such as dp=2, got 'dp=0'

// Nothing that outlives the step is written before the vote.
// ZERO:     all_gather x(@bucket) -> y(@bucket.of_ranks)
// ZERO-NOT: predicate not @failed
// ZERO:     after(@bucket.of_ranks) -> y(@{{.*}}.of_ranks)
// ZERO-NOT: predicate not @failed
// ZERO:     all_gather x(@failed) after({{.*}}) -> y(@status.of_ranks)
// ZERO:     check_ranks status(@failed) of_ranks(@status.of_ranks) -> status(@failed)
// ZERO:     predicate not @failed
// ALONE: --zero is for --mesh: it is the rank whose step is printed
