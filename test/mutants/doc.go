// Command mutants breaks the product on purpose, one rule at a time, and checks
// that the test that guards the rule fails. `make mutants` runs it.
//
// Each file in patches/ is one mutant: three lines of header, then a diff.
//
//	Rule: what is broken, and the chapter of design.md that asks for it
//	Test: package and pattern of go test's -run, such as ./gateway/activation ^TestX$
//	(empty line)
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
//  3. For each mutant: applies the patch (stale: an error), builds the test (does
//     not compile: an error), runs it, and takes the patch back.
//     The named test fails: caught. It passes: survived. It fails to
//     reach the test, as when no API server starts: an error.
//  4. Writes the rows of what was tried to test/mutants/results.md, keeps the other rows,
//     and exits with 1 if any that was tried survived or was an error.
//
// The test in this folder, part of `make test`, checks that each patch still
// applies and that its test exists.
package main
