// A wrong command line is answered with one line, what is known, and exit code 2.
// RUN: not aicf-opt --canonicalise %s 2>&1 | filecheck %s --check-prefix=FLAG
// RUN: not aicf-opt -p "cse,lowr" %s 2>&1 | filecheck %s --check-prefix=PASS
// RUN: not aicf-opt --cse=speed=3 %s 2>&1 | filecheck %s --check-prefix=OPTION
// RUN: not aicf-opt --select-kernels=goal=sm_90 %s 2>&1 | filecheck %s --check-prefix=NAMES
// RUN: not aicf-opt --cse speed=3 %s 2>&1 | filecheck %s --check-prefix=JOINED
// RUN: not aicf-opt -p "cse{" %s 2>&1 | filecheck %s --check-prefix=SYNTAX
// RUN: not aicf-opt --stage kernels %s 2>&1 | filecheck %s --check-prefix=STAGE
// RUN: not aicf-opt --pass-pipeline="builtin.module(func.func(cse))" %s 2>&1 | filecheck %s --check-prefix=NESTED
// RUN: not aicf-opt --mlir-print-ir-after=canonicalise %s 2>&1 | filecheck %s --check-prefix=DUMP
// RUN: not aicf-opt --mlir-elide-elementsattrs-if-larger=few %s 2>&1 | filecheck %s --check-prefix=ELIDE
// RUN: not aicf-opt %s.missing 2>&1 | filecheck %s --check-prefix=MISSING
// RUN: not aicf-opt %S 2>&1 | filecheck %s --check-prefix=FOLDER

// FLAG:    aicf-opt: error: unknown option '--canonicalise'; did you mean --canonicalize?
// PASS:    aicf-opt: error: unknown pass 'lowr'; did you mean lower?
// OPTION:  aicf-opt: error: pass 'cse' has no option 'speed'; it takes no options
// NAMES:   aicf-opt: error: pass 'select-kernels' has no option 'goal'; its options: target: str
// JOINED:  aicf-opt: error: unexpected argument 'speed=3'; pass options follow '='
// SYNTAX:  aicf-opt: error: cannot read the pass list 'cse{': write name{option=value option=value}
// STAGE:   aicf-opt: error: unknown stage 'kernels'; the stages are nn, grad, step, lowered, fused, kernel, buffers, plan
// NESTED:  aicf-opt: error: every pass works on the whole module, got passes on 'func.func': write them without it, as in builtin.module(canonicalize,cse)
// DUMP:    aicf-opt: error: unknown pass 'canonicalise'; did you mean canonicalize?
// ELIDE:   aicf-opt: error: argument --elide-elementsattrs-if-larger/--mlir-elide-elementsattrs-if-larger: expected a number of elements such as 16, got 'few'
// MISSING: error: cannot be read: No such file or directory
// FOLDER:  error: cannot be read: Is a directory
func.func private @nothing()
