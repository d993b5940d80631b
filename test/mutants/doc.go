// Command mutants breaks the product on purpose, one rule at a time, and checks
// that the test that guards the rule fails. `make mutants` runs it.
//
// Each file in rules/ is one mutant:
//
//	Rule: what is broken, and the page of docs/design or docs that asks for it
//	Test: package and pattern of go test's -run, such as ./gateway/activation ^TestX$
//	In: folder of the package, and the function, such as controlplane (*revocations).due
//
//	- room := max(1, len(gateways)/gatewaysForEachOut)
//	+ room := max(1, len(gateways))
//
// The code behind - must stand in that function exactly once; it is compared token by
// token, and may be several lines or a part of a statement. `const x`, `var x`, `type T` and
// `import "path"` name other declarations, and a function's name or `define X` one of C. A mutant may have several
// such pairs, separated by an empty line or by the next In. So a mutant has no place in a
// file: what is moved or renamed beside its code does not touch it.
//
// It is no test of the tests' speed and no random mutation: a mutant is worth
// having if it breaks what the design promises, and it has one named killer.
//
// # What it does, and what happens when a step fails
//
//  1. Copies what git tracks or would track to temporary folders, one for each of
//     -p packages worked on at once, where all of the following happens; the
//     checkout is never changed but for step 4.
//  2. Runs a package's named tests there, unbroken. One that fails, or does not
//     exist, makes errors of its mutants: it could not tell them.
//  3. For each mutant: applies it (its code is not there: an error), builds the test
//     (does not compile: an error), runs it, and takes the change back.
//     The named test fails: caught. It passes: survived. It fails to
//     reach the test, as when no API server starts: an error.
//  4. Writes the rows of what was tried to test/mutants/results.md, keeps the other rows,
//     and exits with 1 if any that was tried survived or was an error.
//
// The test in this folder, part of `make test`, checks that each mutant
// finds its code, leaves a file that parses, and that its test exists.
package main
