// Package freeze stops and continues all processes of a sandbox by signals: all processes of
// this process's PID namespace except this process and PID 1. New makes a Freezer.
//
// It needs no control group. It does not decide whether and when the sandbox is frozen:
// package sandboxd calls it, on an order of a gateway. It stops processes, not the kernel:
// timers go on, connections stay open and the kernel accepts new ones.
//
// # Order
//
// Parents are stopped before their children, and all processes of a generation have stopped
// before the next generation is signalled. The reason is shells: a shell that sees its child
// stop takes the job for suspended and prints so. A stopped shell sees nothing, and when it
// continues its children run already, since children are continued first. A stopped process
// cannot start others, so there are no more rounds once two in a row find no running process.
// Where no end of the rounds comes in sight, since processes start the next one and end, all
// are stopped at once (stopAll).
//
// A process that was stopped already before a Freeze is neither stopped nor continued:
// another program in the sandbox has stopped it.
//
// # States
//
//	running ─Freeze─▶ frozen ─Thaw─▶ running
//	                  frozen ─Refreeze─▶ frozen, whether or not it fails
//	   └─Freeze fails: all processes that it stopped are continued ─▶ running
//
// Freezer.mu serialises the calls. A stopped process can continue without a Thaw: by a
// signal SIGCONT from a timer or a socket that was set up before. So the caller calls
// Refreeze again and again. If a process is killed while it is frozen, a later process with
// its number is not continued: each process is known by its number and start time.
package freeze
